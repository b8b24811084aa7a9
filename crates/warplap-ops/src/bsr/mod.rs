//! Block-sparse times dense: C = alpha·A·B + beta·C, A in compressed rows of blocks (BSR), each block row-major.

#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod factor;
mod legal;
mod op;
mod pattern;
mod problem;
mod turn;
mod validate;

pub use factor::Factor;
pub use pattern::Pattern;
pub use problem::BsrProblem;
pub use turn::{TurnedIndex, turned_index};
pub use validate::{BsrError, check_indices, validate, validate_places};

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::{Answer, Op};
use warplap_core::slot::{Signature, Slot};
use warplap_core::tolerance::Tolerance;

use crate::gemm::Layout;
use crate::right;

/// The operation C = alpha·A·B + beta·C with a block-sparse A.
#[derive(Clone, Copy, Debug)]
pub struct Bsr;

/// The slots of a product.
pub mod slot {
    /// Where each block row begins in the column indices: `m / bs + 1` indices.
    pub const ROW_PTR: usize = 0;
    /// The block column of each stored block: `nnz` indices.
    pub const COL_IDX: usize = 1;
    /// The stored blocks, each row-major.
    pub const VALUES: usize = 2;
    /// B.
    pub const B: usize = 3;
    /// C; what beta multiplies is read from it where the product is in place.
    pub const C: usize = 4;
    /// What beta multiplies, in C's order, where beta is not 0 and the product is not in place: as many elements as C has,
    /// or as rows where it is a bias.
    pub const ADD: usize = 5;
    /// Where each block is stored, `nnz` indices, for a turned A.
    pub const PLACE: usize = 6;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 7;

/// The bytes that the addresses of blocks and dense matrices are a multiple of: so many are read at once.
pub(crate) const ALIGN: u64 = 16;

/// Products of f8e4m3 that the tensor cores' own narrow sums may run through; f32 adds up what comes out.
const RUN: usize = 128;

/// A matrix of a problem in one of the two orders.
pub(crate) fn dense(slot: Slot, layout: Layout) -> Slot {
    let strides = match layout {
        Layout::Row => [slot.shape[1] as u64, 1],
        Layout::Col => [1, slot.shape[0] as u64],
    };
    slot.strided(&strides).aligned(ALIGN)
}

/// The slot that the addend lies in.
pub(crate) fn addend(p: &BsrProblem) -> usize {
    if p.in_place { slot::C } else { slot::ADD }
}

#[cfg(feature = "cpu")]
fn check_on_cpu(p: &BsrProblem, args: &[Arg<'_, warplap_cpu::Cpu>], _: &warplap_cpu::Cpu) -> Result<(), Error> {
    check_indices(p, args)
}

#[cfg(feature = "cuda")]
fn check_on_cuda(p: &BsrProblem, args: &[Arg<'_, warplap_cuda::Cuda>], cuda: &warplap_cuda::Cuda) -> Result<(), Error> {
    use warplap_core::device::Device;
    cuda::IndexCheck::of(cuda)?.check(p, args, cuda.queue())
}

/// How far a kernel may be off, from the largest product of the norms of a row of A and the column of B that it meets.
pub(crate) fn tolerance(p: &BsrProblem, magnitude: f64) -> Tolerance {
    let magnitude = magnitude * f64::from(p.alpha.get()).abs() + f64::from(p.beta.get()).abs();
    let length = (p.row_max * p.bc) as usize;
    match p.dtype {
        _ if p.tf32 => Tolerance::rounded_dot(length, magnitude),
        DType::F8E4m3 => Tolerance::narrow_dot(p.out(), length, length.min(RUN), magnitude),
        dtype => Tolerance::dot(dtype, DType::F32, length, magnitude),
    }
}

impl Op for Bsr {
    const NAME: &'static str = "bsr";

    type Problem = BsrProblem;

    fn signature(p: &BsrProblem) -> Signature {
        let index = |name: &'static str, len: u64| Slot::input(name, DType::I32, &[len]);
        let c = match p.in_place {
            true => Slot::in_out("c", p.out(), &[p.m, p.n]),
            false => Slot::output("c", p.out(), &[p.m, p.n]),
        };
        let add = match p.bias {
            true => Slot::input("add", p.out(), &[p.m]).aligned(ALIGN),
            false => dense(Slot::input("add", p.out(), &[p.m, p.n]), p.c),
        };
        Signature(vec![
            index("row_ptr", p.rows() as u64 + 1),
            index("col_idx", p.nnz),
            Slot::input("values", p.dtype, &[p.nnz, p.bs, p.bc]).aligned(ALIGN),
            dense(Slot::input("b", p.dtype, &[p.k, p.n]), p.b),
            dense(c, p.c),
            add.when(p.adds() && !p.in_place),
            index("place", p.nnz).when(p.turned),
        ])
    }

    fn draw(p: &BsrProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let counts =
            pattern::Counts { rows: p.rows(), columns: p.columns(), nnz: p.nnz as usize, row_max: p.row_max as usize };
        let (row_ptr, col_idx) = pattern::draw(p.pattern, counts, rng);
        let mut inputs = vec![Array::none(); SLOTS];
        (inputs[slot::ROW_PTR], inputs[slot::COL_IDX]) = (Array::I32(row_ptr), Array::I32(col_idx));
        inputs[slot::VALUES] = Array::random(p.dtype, p.values_len(), rng);
        inputs[slot::B] = Array::random(p.dtype, (p.k * p.n) as usize, rng);
        if p.adds() || p.in_place {
            let len = if p.bias { p.m } else { p.m * p.n };
            inputs[addend(p)] = Array::random(p.out(), len as usize, rng);
        }
        if p.turned {
            let mut place: Vec<i32> = (0..p.nnz as i32).collect();
            rng.shuffle(&mut place);
            inputs[slot::PLACE] = Array::I32(place);
        }
        inputs
    }

    fn answer(p: &BsrProblem, inputs: &[Array]) -> Vec<Answer> {
        let (m, k, n) = (p.m as usize, p.k as usize, p.n as usize);
        let (bs, bc) = (p.bs as usize, p.bc as usize);
        let indices = |slot: usize| inputs[slot].indices().unwrap_or(&[]);
        let (row_ptr, col_idx) = (indices(slot::ROW_PTR), indices(slot::COL_IDX));
        let mut values = inputs[slot::VALUES].to_f64();
        if p.turned {
            values = turn::turned(&values, indices(slot::PLACE), (bs, bc));
        }
        let mut b = inputs[slot::B].to_f64();
        if p.b == Layout::Col {
            b = (0..k * n).map(|i| b[i % n * k + i / n]).collect();
        }
        let mut answer = Vec::with_capacity(p.rows() * bs * n);
        let mut magnitude = 0f64;
        // A block row is a dense product of its blocks side by side and the rows of B that they meet.
        for ends in row_ptr.windows(2) {
            let blocks = ends[0] as usize..ends[1] as usize;
            let width = blocks.len() * bc;
            let (mut left, mut below) = (vec![0f64; bs * width], Vec::with_capacity(width * n));
            for (i, at) in blocks.enumerate() {
                for r in 0..bs {
                    left[r * width + i * bc..][..bc].copy_from_slice(&values[(at * bs + r) * bc..][..bc]);
                }
                below.extend_from_slice(&b[col_idx[at] as usize * bc * n..][..bc * n]);
            }
            answer.extend(right::product(bs, n, width, &left, &below));
            let norms = right::largest_row_norm(bs, width, &left) * right::largest_column_norm(width, n, &below);
            magnitude = magnitude.max(norms);
        }
        if p.c == Layout::Col {
            answer = (0..m * n).map(|i| answer[i % m * n + i / m]).collect();
        }
        let (alpha, beta) = (f64::from(p.alpha.get()), f64::from(p.beta.get()));
        answer.iter_mut().for_each(|x| *x *= alpha);
        if p.adds() {
            let at = |i: usize| match (p.bias, p.c) {
                (false, _) => i,
                (true, Layout::Row) => i / n,
                (true, Layout::Col) => i % m,
            };
            answer.iter_mut().enumerate().for_each(|(i, x)| *x += beta * inputs[addend(p)].at(at(i)));
        }
        vec![Answer { values: answer, tolerance: tolerance(p, magnitude) }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_core::scalar::F8E4m3;

    #[test]
    fn the_right_answer_is_that_of_plain_loops() {
        for text in [
            "m=32,k=48,n=7,bs=8,density=0.4",
            "m=48,k=32,n=5,bs=16,density=0.5,imbalance=1.5,b=col,dtype=bf16",
            "m=16,k=16,n=3,bs=8,density=0,dtype=f16",
            "m=32,k=48,n=7,bs=8,density=0.4,alpha=-0.5,beta=2,turned=true",
            "m=48,k=48,n=4,bs=16,density=0.4,alpha=3",
            "m=48,k=64,n=4,bs=24,bc=16,density=0.4,c=col,beta=2,turned=true",
            "m=48,k=64,n=4,bs=16,bc=32,density=0.4,b=col,c=col",
            "m=32,k=48,n=7,bs=8,density=0.4,c=col,alpha=3,beta=-0.5,inplace=true",
            "m=32,k=48,n=7,bs=8,density=0.4,bias=true",
            "m=32,k=48,n=7,bs=8,density=0.4,dtype=f8e4m3,alpha=0.25",
            "m=32,k=48,n=7,bs=8,bc=16,density=0.4,dtype=f8e4m3,c=col,beta=2,turned=true",
            "m=32,k=48,n=7,bs=8,density=0.4,c=col,alpha=3,beta=-0.5,bias=true",
        ] {
            let p = Bsr::parse(text).unwrap();
            let inputs = Bsr::draw(&p, &mut fastrand::Rng::with_seed(4));
            let answer = &Bsr::answer(&p, &inputs)[0].values;
            let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
            let (bs, bc) = (p.bs as usize, p.bc as usize);
            let indices = |slot: usize| inputs[slot].indices().unwrap();
            let (row_ptr, col_idx) = (indices(slot::ROW_PTR), indices(slot::COL_IDX));
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let mut sum = 0.0;
                let blocks = row_ptr[i / bs] as usize..row_ptr[i / bs + 1] as usize;
                for (at, column) in blocks.clone().zip(&col_idx[blocks]) {
                    for q in 0..bc {
                        let row = *column as usize * bc + q;
                        let place = if p.b == Layout::Row { row * n + j } else { j * k + row };
                        let a = match p.turned {
                            true => (indices(slot::PLACE)[at] as usize * bc + q) * bs + i % bs,
                            false => (at * bs + i % bs) * bc + q,
                        };
                        sum += inputs[slot::VALUES].at(a) * inputs[slot::B].at(place);
                    }
                }
                sum *= f64::from(p.alpha.get());
                let place = if p.c == Layout::Row { i * n + j } else { j * m + i };
                if p.adds() {
                    sum += f64::from(p.beta.get()) * inputs[addend(&p)].at(if p.bias { i } else { place });
                }
                assert!((answer[place] - sum).abs() < 1e-12, "{text} at {i}, {j}");
            }
        }
    }

    #[test]
    fn a_step_of_bytes_that_is_left_out_is_a_wrong_answer() {
        let p = Bsr::parse("m=128,k=2048,n=40,bs=64,density=0.5,dtype=f8e4m3,alpha=0.25").unwrap();
        let inputs = Bsr::draw(&p, &mut fastrand::Rng::with_seed(4));
        let right = &Bsr::answer(&p, &inputs)[0];
        let wrong = |inputs: &[Array]| {
            let got = Bsr::answer(&p, inputs)[0].values.clone();
            right.values.iter().zip(got).filter(|(r, g)| (*r - g).abs() > right.tolerance.allowed(**r)).count()
        };
        // One step of the tensor cores is 32 elements: the first half of the first block of the first row.
        let mut corrupted_inputs = inputs.clone();
        let Array::F8E4m3(codes) = &mut corrupted_inputs[slot::VALUES] else { panic!("blocks are bytes") };
        codes[..64 * 64].chunks_mut(64).for_each(|line| line[..32].fill(F8E4m3(0)));
        assert!(wrong(&corrupted_inputs) > 64 * 40 / 4, "{} of {}", wrong(&corrupted_inputs), 64 * 40);
        assert_eq!(wrong(&inputs), 0);
    }

    #[test]
    fn every_slot_is_drawn_as_long_as_it_is_and_the_addend_is_an_argument_or_c_itself() {
        let plain = "m=48,k=64,n=4,bs=24,bc=16,density=0.4,c=col";
        for (rest, absent) in [
            ("", vec!["add", "place"]),
            (",beta=2", vec!["place"]),
            (",beta=2,turned=true", vec![]),
            (",bias=true", vec!["place"]),
            (",beta=2,inplace=true", vec!["add", "place"]),
            (",beta=2,dtype=f8e4m3", vec!["place"]),
        ] {
            let p = Bsr::parse(&format!("{plain}{rest}")).unwrap();
            let (signature, inputs) = (Bsr::signature(&p), Bsr::draw(&p, &mut fastrand::Rng::with_seed(4)));
            assert_eq!((signature.slots().len(), inputs.len()), (SLOTS, SLOTS));
            for (slot, input) in signature.slots().iter().zip(&inputs) {
                assert_eq!(input.len(), if slot.is_read() { slot.len() } else { 0 }, "{rest}: {}", slot.name);
            }
            let named = signature.slots().iter().filter(|s| !s.present).map(|s| s.name.clone());
            assert_eq!(named.collect::<Vec<_>>(), absent, "{rest}");
            assert_eq!(signature.slots()[slot::C].is_read(), p.in_place);
        }
    }
}
