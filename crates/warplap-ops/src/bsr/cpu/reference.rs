//! The reference: plain loops over blocks, one thread, any layout.
//!
//! Idea: each row of C gathers multiples of B's rows, block by block. Wins: never by design, but tiny problems leave
//! nothing to gain. Limits: none; it fits everything and is the fallback.

use half::bf16;
use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::scalar::{F8E4m3, Scalar};
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::matrix::Matrix;
use crate::bsr::{Bsr, BsrProblem};
use crate::gemm::Layout;
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

impl Variant<Bsr, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &BsrProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &BsrProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &BsrProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(BsrProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let p = &self.0;
        if p.dtype == DType::F8E4m3 {
            let numbers: [f32; 256] = std::array::from_fn(|code| F8E4m3(code as u8).to_f64() as f32);
            return product::<F8E4m3, bf16>(p, args, |x| numbers[usize::from(x.0)]);
        }
        for_dtype!(p.dtype, T => product::<T, T>(p, args, T::widen))
    }
}

fn product<T: Typed + Copy, C: Element + Typed>(
    p: &BsrProblem,
    args: &mut [Arg<'_, Cpu>],
    widen: impl Fn(T) -> f32,
) -> Result<(), Rejection> {
    let (a, c) = Matrix::<T, C>::checked(p, args)?;
    let (bs, bc) = (p.bs as usize, p.bc as usize);
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let mut line = vec![0f32; n];
    let finish = a.finish;
    for i in 0..m {
        line.fill(0.0);
        let blocks = a.row(i / bs);
        for (column, block) in a.columns(blocks.clone()).iter().zip(a.values(blocks).chunks_exact(bs * bc)) {
            for (q, x) in block[i % bs * bc..][..bc].iter().enumerate() {
                let (x, row) = (widen(*x), *column as usize * bc + q);
                if p.b == Layout::Row {
                    for (sum, y) in line.iter_mut().zip(&a.b[row * n..][..n]) {
                        *sum += x * widen(*y);
                    }
                } else {
                    for (j, sum) in line.iter_mut().enumerate() {
                        *sum += x * widen(a.b[j * k + row]);
                    }
                }
            }
        }
        for (j, sum) in line.iter().enumerate() {
            let at = if p.c == Layout::Row { i * n + j } else { j * m + i };
            // SAFETY: an element of C, which is ours alone.
            unsafe { *c.at(at) = C::narrow(finish.one(*sum, at)) };
        }
    }
    Ok(())
}
