//! Any number of columns for kernels that take rows of whole 16 bytes: B is copied into longer rows, C comes back out of
//! longer ones; where one of them lies in columns, it is copied with room for a few more. Costs one reading and writing of
//! both, in scratch of their size, one for each stream.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use warplap_core::rejection::Rejection;
use warplap_cuda::{Cuda, Function, LaunchShape, Source, Stream};

use crate::bsr::slot::{ADD, B, C};
use crate::bsr::{BsrProblem, SLOTS};
use crate::cuda::scratch::{Need, Scratch};
use crate::gemm::Layout;

/// Bytes of which rows must be whole runs.
const RUN: u64 = 16;

/// Lines that a block of threads copies.
const LINES: u32 = 8;

/// The problem with rows of whole runs, where a problem has rows that are not.
pub(super) fn wider(p: &BsrProblem) -> Option<BsrProblem> {
    // Where B has rows, they are of C's type.
    let each = RUN / p.out().bytes() as u64;
    let rows = p.b == Layout::Row || p.c == Layout::Row;
    (rows && !p.n.is_multiple_of(each)).then(|| BsrProblem { n: p.n.next_multiple_of(each), ..*p })
}

/// What is compiled.
pub(super) fn source(p: &BsrProblem) -> Source {
    Source { entry: "widen", text: include_str!("widen.cu"), headers: &[], defines: vec![("UNIT", unit(p) as i64)] }
}

/// Bytes that divide a row, a power of two below a run.
fn unit(p: &BsrProblem) -> u64 {
    (1 << (p.n * p.out().bytes() as u64).trailing_zeros()).min(RUN / 2)
}

/// A slot that is copied: so many lines of so many elements, into lines of as many or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    slot: usize,
    lines: u64,
    before: u64,
    after: u64,
    /// Elements of the copy; of columns it has more than are copied.
    room: u64,
    /// Bytes of an element.
    bytes: u64,
}

/// B, C, and what beta multiplies where it lies elsewhere and has C's shape.
fn copied(p: &BsrProblem) -> Vec<Copied> {
    let Some(wide) = wider(p) else { return Vec::new() };
    let of = |slot: usize, height: u64, layout: Layout| {
        let (lines, before, after) = match layout {
            Layout::Row => (height, p.n, wide.n),
            Layout::Col => (p.n, height, height),
        };
        let dtype = if slot == B { p.dtype } else { p.out() };
        Copied { slot, lines, before, after, room: height * wide.n, bytes: dtype.bytes() as u64 }
    };
    let mut all = vec![of(B, p.k, p.b), of(C, p.m, p.c)];
    all.extend((p.adds() && !p.bias && !p.in_place).then(|| of(ADD, p.m, p.c)));
    all
}

/// Bytes of scratch of one launch.
pub(super) fn workspace(p: &BsrProblem) -> u64 {
    copied(p).iter().map(|c| c.room * c.bytes).sum()
}

/// Copies rows where a problem asks for it.
pub(super) struct Widened(Option<Widening>);

struct Widening {
    function: Function,
    copied: Vec<Copied>,
    /// Bytes that are copied at once.
    unit: u64,
    reads_c: bool,
    scratch: Scratch,
    /// Held while a launch is queued: no other one comes between its copies.
    queueing: Mutex<()>,
}

impl Widened {
    /// Nothing is copied.
    pub(super) fn none() -> Self {
        Widened(None)
    }

    /// What a problem needs: nothing where its rows are whole runs.
    pub(super) fn new(p: &BsrProblem, cuda: &Cuda) -> Result<Self, Rejection> {
        if wider(p).is_none() {
            return Ok(Widened::none());
        }
        Ok(Widened(Some(Widening {
            function: cuda.build(&source(p))?,
            copied: copied(p),
            unit: unit(p),
            reads_c: p.in_place && p.adds(),
            scratch: Scratch::new(Need { words: workspace(p).div_ceil(4), zeros: 0 }),
            queueing: Mutex::default(),
        })))
    }

    /// Bytes of scratch of one launch.
    pub(super) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |w| w.copied.iter().map(|c| c.room * c.bytes).sum())
    }

    /// Runs a body with the addresses of copies; what it queues comes after they were made, and what it wrote goes to C
    /// afterwards.
    pub(super) fn with(
        &self,
        at: &[u64; SLOTS],
        queue: &Stream,
        body: impl FnOnce(&[u64; SLOTS]) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let Some(widening) = &self.0 else { return body(at) };
        let _one = widening.queueing.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut wide, mut room) = (*at, widening.scratch.address(queue)?);
        for copied in &widening.copied {
            wide[copied.slot] = room;
            room += copied.room * copied.bytes;
            if copied.slot != C || widening.reads_c {
                widening.copy(copied, [at[copied.slot], wide[copied.slot]], queue)?;
            }
        }
        body(&wide)?;
        let back = |c: &Copied| Copied { before: c.after, after: c.before, ..*c };
        let mut written = widening.copied.iter().filter(|c| c.slot == C);
        written.try_for_each(|c| widening.copy(&back(c), [wide[C], at[C]], queue))
    }
}

impl Widening {
    fn copy(&self, copied: &Copied, [from, to]: [u64; 2], queue: &Stream) -> Result<(), Rejection> {
        let over = |_| Rejection::OverLimits { reason: "the rows are too many or too long for a launch".into() };
        let units = |elements: u64| i32::try_from(elements * copied.bytes / self.unit).map_err(over);
        let lines = i32::try_from(copied.lines).map_err(over)?;
        let (before, after) = (units(copied.before)?, units(copied.after)?);
        let grid = [lines.unsigned_abs().div_ceil(LINES), 1, 1];
        let shape = LaunchShape { grid, threads: 32 * LINES, ..LaunchShape::default() };
        let numbers = [&lines, &before, &after].map(|n| (&raw const *n).cast::<c_void>());
        let list = [(&raw const from).cast(), (&raw const to).cast(), numbers[0], numbers[1], numbers[2]];
        // SAFETY: two addresses and three numbers, as the entry declares them; the catalog hands out kernels that refuse
        // other arguments than the signature's, and the scratch holds so many lines.
        unsafe { self.function.launch(&shape, &list, queue) }.map_err(|e| e.rejection())
    }
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;

    use super::*;
    use crate::bsr::Bsr;

    fn problem(text: &str) -> BsrProblem {
        Bsr::parse(&format!("bsr:m=64,k=128,bs=32,density=0.5,{text}")).unwrap()
    }

    /// Slot, lines, elements before and after.
    fn plain(p: &BsrProblem) -> Vec<(usize, u64, u64, u64)> {
        copied(p).iter().map(|c| (c.slot, c.lines, c.before, c.after)).collect()
    }

    #[test]
    fn rows_become_whole_runs() {
        let p = problem("n=300,dtype=f16");
        assert_eq!((wider(&p).unwrap().n, unit(&p), workspace(&p)), (304, 8, (128 + 64) * 304 * 2));
        assert_eq!(plain(&p), [(B, 128, 300, 304), (C, 64, 300, 304)]);
        assert_eq!(plain(&problem("n=301,dtype=f16,beta=1,inplace=true")).len(), 2);
        assert_eq!(plain(&problem("n=301,dtype=f16,bias=true")).len(), 2);
        assert_eq!(plain(&problem("n=6,dtype=f32,beta=1"))[2], (ADD, 64, 6, 8));
    }

    /// A kernel that sees more columns of them would go beyond their end.
    #[test]
    fn columns_beside_such_rows_are_copied_as_they_are() {
        let odd = problem("n=301,dtype=f16,b=col,beta=1");
        assert_eq!((wider(&odd).unwrap().n, unit(&odd)), (304, 2));
        assert_eq!(plain(&odd), [(B, 301, 128, 128), (C, 64, 301, 304), (ADD, 64, 301, 304)]);
        let single = problem("n=6,dtype=f32,c=col");
        assert_eq!((wider(&single).unwrap().n, unit(&single)), (8, 8));
        assert_eq!((plain(&single)[1], copied(&single)[1].room), ((C, 6, 64, 64), 8 * 64));
    }

    #[test]
    fn bytes_of_b_are_copied_beside_rows_of_two_bytes() {
        let p = problem("n=301,dtype=f8e4m3,beta=1");
        assert_eq!((wider(&p).unwrap().n, unit(&p)), (304, 2));
        assert_eq!(plain(&p), [(B, 301, 128, 128), (C, 64, 301, 304), (ADD, 64, 301, 304)]);
        assert_eq!(workspace(&p), 128 * 304 + 2 * (2 * 64 * 304));
    }

    #[test]
    fn whole_runs_and_columns_alone_stay_as_they_are() {
        for text in ["n=304,dtype=bf16", "n=4,dtype=f32", "n=301,dtype=f16,b=col,c=col", "n=40,dtype=f8e4m3"] {
            assert!(wider(&problem(text)).is_none() && workspace(&problem(text)) == 0, "{text}");
        }
    }
}
