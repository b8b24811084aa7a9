//! What the variants of dense products are made of: packing, register tiles, blocked loops, dot products, scratch
//! memory, and one plain function ([`sgemm`]) for other operations.

pub(crate) mod activate;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod amx_pack;
#[cfg(target_arch = "x86_64")]
mod amx_sums;
pub(crate) mod blocked;
pub(crate) mod dot;
pub(crate) mod epilogue;
pub(crate) mod in_place;
pub(crate) mod pack;
pub(crate) mod scratch;
mod sgemm;
mod stages;
pub(crate) mod thin;
pub(crate) mod tile;

#[allow(unused_imports)] // The door for other operations.
pub(crate) use sgemm::{Refused, sgemm};

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_cpu::{Cpu, Typed};

use crate::gemm::slot::{A, B, BIAS, C, JOINED};
use crate::gemm::{GemmProblem, Layout};
use crate::typed::{read, write};
use blocked::Product;
use epilogue::{Epilogue, Joined};

/// A borrowed input matrix by address: where it starts, how far its lines are apart, and which way they run.
#[derive(Clone, Copy)]
pub(crate) struct Operand<T> {
    /// The first element.
    pub at: *const T,
    /// Elements from one line to the next.
    pub ld: usize,
    /// Whether lines are rows or columns.
    pub layout: Layout,
}

// SAFETY: an operand is only read, and whoever makes one borrows the memory until the product is done.
unsafe impl<T: Sync> Send for Operand<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Operand<T> {}

impl<T> Operand<T> {
    /// The address of element (row, column).
    ///
    /// # Safety
    /// The element lies inside the matrix.
    #[inline(always)]
    pub(crate) unsafe fn element(&self, row: usize, column: usize) -> *const T {
        let offset = match self.layout {
            Layout::Row => row * self.ld + column,
            Layout::Col => column * self.ld + row,
        };
        // SAFETY: inside the matrix, says the caller.
        unsafe { self.at.add(offset) }
    }
}

impl<T> Operand<T> {
    /// The transposed matrix: the same memory read the other way.
    pub(crate) fn transposed(self) -> Self {
        let layout = if self.layout == Layout::Row { Layout::Col } else { Layout::Row };
        Operand { layout, ..self }
    }
}

/// An output address that threads share; each writes its own part.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub *mut T);

// SAFETY: the loops hand disjoint parts to their tasks, and the launch borrows the memory until all have ended.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The address, `offset` elements on.
    ///
    /// # Safety
    /// The offset stays inside the memory.
    #[inline(always)]
    pub(crate) unsafe fn add(self, offset: usize) -> *mut T {
        // SAFETY: inside the memory, says the caller.
        unsafe { self.0.add(offset) }
    }
}

/// A, B and C.
pub(super) type Buffers<'a, T> = (&'a [T], &'a [T], &'a mut [T]);

/// The typed slices of a launch; the catalog hands out kernels that refuse other arguments than the signature's, so
/// that they hold what the problem spans.
pub(super) fn buffers<'a, T: Typed>(args: &mut [Arg<'a, Cpu>]) -> Result<Buffers<'a, T>, Rejection> {
    Ok((read(args[A].read()?)?, read(args[B].read()?)?, write(args[C].write()?)?))
}

/// What is done to a product before it is stored.
pub(super) fn epilogue<'a, T: Typed>(p: &GemmProblem, args: &[Arg<'a, Cpu>]) -> Result<Epilogue<'a, T>, Rejection> {
    let joined = args[JOINED].view().map(read).transpose()?;
    let joined = joined.map(|elements| Joined { elements, row: p.ldc as usize, how: p.join });
    Ok(Epilogue { bias: args[BIAS].view().map(read).transpose()?, act: p.act, joined })
}

/// The product by addresses. C stays borrowed as long as the arguments were.
pub(super) fn product<'a, T: Typed>(p: &GemmProblem, args: &mut [Arg<'a, Cpu>]) -> Result<Product<'a, T>, Rejection> {
    let epilogue = epilogue(p, args)?;
    let (a, b, c) = buffers::<T>(args)?;
    Ok(Product {
        m: p.m as usize,
        n: p.n as usize,
        k: p.k as usize,
        a: Operand { at: a.as_ptr(), ld: p.lda as usize, layout: p.a },
        b: Operand { at: b.as_ptr(), ld: p.ldb as usize, layout: p.b },
        c: Shared(c.as_mut_ptr()),
        ldc: p.ldc as usize,
        epilogue,
    })
}
