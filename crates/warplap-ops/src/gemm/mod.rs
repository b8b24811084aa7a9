//! Dense matrix product C = act(scale ∘ A·B + bias), or a batch of them, and that plus or times another matrix. C is
//! row-major; A and B may be row- or column-major, with padded rows. Factors, bias, activation and the other matrix are
//! left out unless a problem asks for them. A pair is one product with two second factors, act(A·B) ∘ (A·B2): the gated
//! half of a layer. With rms the factors are 1/√(mean(x²) + eps) of A's rows: an RMSNorm in front, its gain folded into B.
//!
//! Sums, factors, the bias, the activation and what is joined are computed in f32. In half types a kernel may also round the
//! product, or what becomes of it, to the type of C on the way: both are right.

mod activation;
mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod join;
mod layout;
mod op;
mod scale;

pub use activation::Activation;
pub use join::Join;
pub use layout::{Kind, Layout};
pub use op::GemmProblem;
pub use scale::{Rms, Scale};

#[cfg(feature = "cuda")]
use answer::largest;

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::slot::{Signature, Slot};
use warplap_core::tolerance::Tolerance;

use crate::host::{map_floats, map_floats_by_place, small_rows};

/// The operation C = act(A·B + bias), joined with another matrix or another product where a problem has one.
#[derive(Clone, Copy, Debug)]
pub struct Gemm;

/// The places of the slots.
pub mod slot {
    /// A, `problem.a_len()` elements.
    pub const A: usize = 0;
    /// B, `problem.b_len()` elements.
    pub const B: usize = 1;
    /// C, `problem.c_len()` elements; padding between rows is left as it is.
    pub const C: usize = 2;
    /// The bias, where the problem has one: an element for each column of C, the same for every product of a batch.
    pub const BIAS: usize = 3;
    /// What the product is joined with, where the problem says so: it lies as C does.
    pub const JOINED: usize = 4;
    /// The second B of a pair: it lies as B does.
    pub const B2: usize = 5;
    /// The factors, where the problem has any: one, or one for each row of all products of a batch.
    pub const SCALE: usize = 6;
}

/// How many slots there are.
pub const SLOTS: usize = 7;

impl Op for Gemm {
    const NAME: &'static str = "gemm";

    type Problem = GemmProblem;

    fn signature(p: &GemmProblem) -> Signature {
        let [a, b, c] = p.strides();
        let steps = |layout, ld| if layout == Layout::Row { [ld, 1] } else { [1, ld] };
        let ([a_row, a_column], [b_row, b_column]) = (steps(p.a, p.lda), steps(p.b, p.ldb));
        // A batch is one more dimension, in front.
        let from = usize::from(p.batch <= 1);
        let factor = |name: &'static str| {
            Slot::input(name, p.dtype, &[p.batch, p.k, p.n][from..]).strided(&[b, b_row, b_column][from..])
        };
        let slots = [
            Slot::input("a", p.dtype, &[p.batch, p.m, p.k][from..]).strided(&[a, a_row, a_column][from..]),
            factor("b"),
            Slot::output("c", p.dtype, &[p.batch, p.m, p.n][from..]).strided(&[c, p.ldc, 1][from..]),
            Slot::input("bias", p.dtype, &[p.n]).when(p.bias),
            Slot::input("joined", p.dtype, &[p.batch, p.m, p.n][from..])
                .strided(&[c, p.ldc, 1][from..])
                .when(p.join != Join::None),
            factor("b2").when(p.pair),
        ];
        let scale = Slot::input("scale", DType::F32, &[p.scale.count(p.rows())]).when(p.scale != Scale::None);
        Signature(slots.map(|slot| slot.aligned(p.align)).into_iter().chain([scale]).collect())
    }

    fn draw(p: &GemmProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        if let Some(rms) = p.rms {
            let (scales, _) = small_rows(p.rows(), rms.eps(), rng);
            map_floats(&mut inputs[slot::A], p.lda as usize, |row, x| x * scales[row]);
        } else if p.act.is_smooth() {
            far_rows(p, &mut inputs[slot::A], rng);
        }
        inputs
    }

    fn answer(p: &GemmProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

/// The root of the mean square of sums in a far row: three times that is where e^x leaves f32, and the product of two such
/// sums is still a number in f16.
const FAR: f32 = 32.0;

/// Stretches one row of A in eight so far that its sums reach to where exponentials end: short sums never do by
/// themselves, and long ones are far enough as they are. What sums may be off by is no more than that of long ones then.
fn far_rows(p: &GemmProblem, a: &mut Array, rng: &mut fastrand::Rng) {
    // The mean square of a product of two numbers from [-1, 1) is a ninth.
    let stretch = FAR * 3.0 / (p.k as f32).sqrt();
    if stretch > 1.0 {
        let far: Vec<bool> = (0..p.rows()).map(|_| rng.u8(..8) == 0).collect();
        let is_far = |row: usize| far.get(row).is_some_and(|far| *far);
        map_floats_by_place(a, p.lda as usize, |line, place, x| {
            let row = if p.a == Layout::Row { line } else { place };
            if is_far(row) { x * stretch } else { x }
        });
    }
}

/// How far a product may be off, given the largest product of the norm of a row of A and that of a column of B, and the
/// largest numbers of the bias and of what is joined; of a pair those of its activated product and of the other one.
fn tolerance(p: &GemmProblem, magnitude: f64, most: [f64; 2]) -> Tolerance {
    let [bias, joined] = if p.pair { [0.0; 2] } else { most };
    let product = match p.tf32 {
        true => Tolerance::rounded_dot(p.k as usize, magnitude),
        false => Tolerance::dot(p.dtype, DType::F32, p.k as usize, magnitude),
    };
    let activated = match p.act {
        act if act.is_smooth() => product.added(bias).activated(),
        _ => product.added(bias),
    };
    match p.join {
        Join::None if p.pair => activated.paired(product, most, p.dtype),
        Join::None => activated,
        Join::Add => activated.added(joined),
        Join::Mul => activated.multiplied(p.dtype, joined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_span_what_the_problem_says_in_every_layout() {
        for text in [
            "gemm:m=3,n=4,k=5,dtype=f32",
            "gemm:m=7,n=2,k=9,dtype=f16,a=col,ldc=5,align=4",
            "gemm:m=6,n=3,k=8,dtype=f32,a=col,b=col,lda=9,ldb=10,ldc=4,batch=3",
            "gemm:m=1,n=1,k=4,dtype=f16,b=col,lda=7,batch=2",
            "gemm:m=2,n=9,k=4,dtype=f16,batch=2,bias=true",
            "gemm:m=2,n=9,k=4,dtype=f16,ldc=12,batch=2,join=add",
            "gemm:m=2,n=9,k=4,dtype=f16,ldb=12,batch=2,b=col,pair=true",
            "gemm:m=2,n=9,k=4,dtype=f16,batch=3,scale=rows",
            "gemm:m=2,n=9,k=4,dtype=f32,scale=one",
            "gemm:m=2,n=9,k=4,dtype=f32,rms=1e-5",
        ] {
            let p = Gemm::parse(text).unwrap();
            let Signature(slots) = Gemm::signature(&p);
            let spans = [slot::A, slot::B, slot::C].map(|i| slots[i].len());
            assert_eq!(spans, [p.a_len(), p.b_len(), p.c_len()], "{text}");
            let (scale, matrices) = slots.split_last().unwrap();
            assert!(matrices.iter().all(|s| s.dtype == p.dtype && s.align as u64 == p.align), "{text}");
            let factors = p.scale.count(p.m * p.batch) as usize;
            assert_eq!((scale.present, scale.len(), scale.dtype), (factors > 0, factors, DType::F32), "{text}");
            let bias = &slots[slot::BIAS];
            assert_eq!((slots.len(), bias.present, bias.len()), (SLOTS, p.bias, if p.bias { 9 } else { 0 }), "{text}");
            let (joined, has) = (&slots[slot::JOINED], p.join != Join::None);
            assert_eq!((joined.present, joined.len()), (has, if has { p.c_len() } else { 0 }), "{text}");
            let (b, b2) = (&slots[slot::B], &slots[slot::B2]);
            assert_eq!((b2.present, b2.len()), (p.pair, if p.pair { p.b_len() } else { 0 }), "{text}");
            assert!(!p.pair || (&b.shape, &b.strides) == (&b2.shape, &b2.strides), "{text}");
        }
    }

    #[test]
    fn a_bias_left_out_and_another_activation_are_wrong_answers() {
        let answer = |text: &str, p: &GemmProblem| {
            let drawn = Gemm::draw(&Gemm::parse(text).unwrap(), &mut fastrand::Rng::with_seed(8));
            Gemm::answer(p, &drawn).remove(0)
        };
        for dtype in ["f32", "f16", "bf16"] {
            let text = format!("gemm:m=40,n=24,k=64,dtype={dtype},bias=true,act=gelu");
            let p = Gemm::parse(&text).unwrap();
            let right = answer(&text, &p);
            let allowed = |value: f64| right.tolerance.allowed(value);
            for (bias, act) in [
                (false, Activation::Gelu),
                (true, Activation::None),
                (true, Activation::Relu),
                (true, Activation::Silu),
                (true, Activation::Tanh),
                (true, Activation::Sigmoid),
                (true, Activation::GeluTanh),
            ] {
                let other = answer(&text, &p.with_epilogue(bias, act));
                let wrong =
                    right.values.iter().zip(&other.values).filter(|(r, o)| (*r - *o).abs() > allowed(**r)).count();
                // The two forms of GELU differ by less than 0.0005, which half types cannot tell apart.
                let is_distinct = act != Activation::GeluTanh || dtype == "f32";
                assert!(
                    wrong > right.values.len() / 10 || !is_distinct,
                    "{dtype}: bias={bias} {act}: {wrong} are wrong"
                );
            }
        }
    }

    #[test]
    fn another_join_is_a_wrong_answer() {
        for (dtype, join) in ["f32", "f16", "bf16"].into_iter().flat_map(|d| [Join::Add, Join::Mul].map(|j| (d, j))) {
            let p = Gemm::parse(&format!("gemm:m=40,n=24,k=64,dtype={dtype},act=silu,join={join}")).unwrap();
            let drawn = Gemm::draw(&p, &mut fastrand::Rng::with_seed(8));
            let right = Gemm::answer(&p, &drawn).remove(0);
            for other in Join::ALL.into_iter().filter(|other| *other != join) {
                let wrong = Gemm::answer(&p.with_join(other), &drawn).remove(0);
                let off = right.values.iter().zip(&wrong.values);
                let off = off.filter(|(r, w)| (*r - *w).abs() > right.tolerance.allowed(**r)).count();
                assert!(off > right.values.len() / 2, "{dtype}: {join} as {other}: {off} are wrong");
            }
        }
    }

    #[test]
    fn one_half_of_a_pair_and_halves_exchanged_are_wrong_answers() {
        for dtype in ["f32", "f16", "bf16"] {
            let p = Gemm::parse(&format!("gemm:m=40,n=24,k=64,dtype={dtype},act=silu,pair=true")).unwrap();
            let drawn = Gemm::draw(&p, &mut fastrand::Rng::with_seed(8));
            let right = Gemm::answer(&p, &drawn).remove(0);
            let mut exchanged = drawn.clone();
            exchanged.swap(slot::B, slot::B2);
            let plain = p.with_epilogue(false, Activation::None);
            for (what, other, inputs) in [
                ("exchanged", p, &exchanged),
                ("not activated", plain, &drawn),
                ("the first alone", p.with_pair(false), &drawn),
                ("the second alone", plain.with_pair(false), &exchanged),
            ] {
                let wrong = Gemm::answer(&other, inputs).remove(0);
                let off = right.values.iter().zip(&wrong.values);
                let off = off.filter(|(r, w)| (*r - *w).abs() > right.tolerance.allowed(**r)).count();
                assert!(off > right.values.len() / 2, "{dtype}: {what}: {off} are wrong");
            }
        }
    }

    #[test]
    fn factors_left_out_exchanged_or_without_what_is_under_the_root_are_wrong_answers() {
        for dtype in ["f32", "f16", "bf16"] {
            for rest in ["scale=rows", "scale=one", "rms=1e-3", "rms=1e-3,pair=true,act=silu", "scale=rows,pair=true"] {
                let p = Gemm::parse(&format!("gemm:m=40,n=24,k=64,dtype={dtype},{rest}")).unwrap();
                let drawn = Gemm::draw(&p, &mut fastrand::Rng::with_seed(8));
                let right = Gemm::answer(&p, &drawn).remove(0);
                let mut others = vec![("left out", p.with_scale(Scale::None).with_rms(None))];
                if p.scale == Scale::Rows {
                    others.push(("that of the first row", p.with_scale(Scale::One)));
                }
                if p.rms.is_some() {
                    others.push(("nothing under the root", p.with_rms(Rms::new(1e-20))));
                }
                for (what, other) in others {
                    let wrong = Gemm::answer(&other, &drawn).remove(0);
                    let off = right.values.iter().zip(&wrong.values);
                    let off = off.filter(|(r, w)| (*r - *w).abs() > right.tolerance.allowed(**r)).count();
                    assert!(off > right.values.len() / 10, "{dtype} {rest}: {what}: {off} are wrong");
                }
            }
        }
    }

    #[test]
    fn the_answer_is_the_plain_triple_loop_in_every_layout_and_says_where_padding_is() {
        for text in [
            "gemm:m=3,n=4,k=5,dtype=f32",
            "gemm:m=7,n=2,k=9,dtype=f16,a=col,ldc=5",
            "gemm:m=5,n=6,k=1,dtype=bf16,b=col,lda=3,ldb=4",
            "gemm:m=6,n=3,k=8,dtype=f32,a=col,b=col,lda=9,ldb=10,ldc=4",
            "gemm:m=6,n=3,k=8,dtype=f32,a=col,b=col,lda=9,ldb=10,ldc=4,batch=3",
            "gemm:m=2,n=3,k=4,dtype=f16,b=col,batch=2",
            "gemm:m=2,n=3,k=4,dtype=f16,ldc=5,batch=2,bias=true",
            "gemm:m=4,n=3,k=4,dtype=f32,bias=true,act=gelu",
            "gemm:m=4,n=3,k=4,dtype=bf16,act=silu",
            "gemm:m=4,n=3,k=4,dtype=bf16,ldc=5,batch=2,bias=true,act=silu,join=mul",
            "gemm:m=4,n=3,k=4,dtype=f32,join=add",
            "gemm:m=4,n=3,k=4,dtype=f16,b=col,ldb=7,ldc=5,batch=2,act=silu,pair=true",
            "gemm:m=4,n=3,k=4,dtype=f32,pair=true",
            "gemm:m=4,n=3,k=4,dtype=f16,lda=7,ldc=5,batch=2,scale=rows,bias=true,act=relu,join=add",
            "gemm:m=4,n=3,k=4,dtype=f32,scale=one,pair=true",
            "gemm:m=4,n=3,k=4,dtype=bf16,lda=7,batch=2,rms=0.01,act=silu,pair=true",
            "gemm:m=4,n=3,k=4,dtype=f32,rms=0.01,bias=true",
        ] {
            let p = Gemm::parse(text).unwrap();
            let inputs = Gemm::draw(&p, &mut fastrand::Rng::with_seed(5));
            let answer = &Gemm::answer(&p, &inputs)[0];
            let at = |layout, ld: u64, i: u64, j: u64| {
                if layout == Layout::Row { (i * ld + j) as usize } else { (j * ld + i) as usize }
            };
            assert_eq!(answer.values.len(), p.c_len());
            for (index, value) in answer.values.iter().enumerate() {
                let (one, inside) = (index as u64 / p.strides()[2], index as u64 % p.strides()[2]);
                let (i, j) = (inside / p.ldc, inside % p.ldc);
                let [a0, b0, _] = p.strides().map(|s| (one * s) as usize);
                if j >= p.n {
                    assert!(value.is_nan(), "{text}: padding at {index}");
                    continue;
                }
                let sum = |b: usize| -> f64 {
                    (0..p.k)
                        .map(|q| inputs[0].at(a0 + at(p.a, p.lda, i, q)) * inputs[b].at(b0 + at(p.b, p.ldb, q, j)))
                        .sum()
                };
                let bias = if p.bias { inputs[slot::BIAS].at(j as usize) } else { 0.0 };
                let other = if p.join == Join::None { 0.0 } else { inputs[slot::JOINED].at(index) };
                let squares: f64 = (0..p.k).map(|q| inputs[0].at(a0 + at(p.a, p.lda, i, q)).powi(2)).sum();
                let factor = match (p.scale, p.rms) {
                    (_, Some(rms)) => (squares / p.k as f64 + f64::from(rms.eps())).powf(-0.5),
                    (Scale::None, None) => 1.0,
                    (Scale::One, None) => inputs[slot::SCALE].at(0),
                    (Scale::Rows, None) => inputs[slot::SCALE].at((one * p.m + i) as usize),
                };
                let half = if p.pair { factor * sum(slot::B2) } else { 1.0 };
                let joined = p.join.of(p.act.of(factor * sum(slot::B) + bias), other) * half;
                assert!((value - joined).abs() < 1e-12, "{text} ({i}, {j})");
            }
        }
    }
}
