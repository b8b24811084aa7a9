//! Right answers: what is left out or done wrong is seen, in every type.

use warplap_core::array::Array;
use warplap_core::op::{Answer, Op};
use warplap_ops::gemm::{Activation, Join};
use warplap_ops::norm::Kind;

use super::{Cpu, DType, Error, Mode};
use super::{layer, layer_of, session};
use crate::host::answered;
use crate::node::What;
use crate::problem::{GraphProblem, Graphs};
use crate::sample::Sample;
use crate::{Builder, Tensor, Turn};

/// One element that is off rejects a partition; there shall be many.
const ENOUGH: f64 = 0.05;

/// The share of elements that are off by more than is allowed, where a node does something else.
fn off(dtype: DType, mutate: impl Fn(&mut What) -> bool) -> f64 {
    let session = session(Mode::Off);
    let fused = layer(&mut session.graph(), 16, dtype);
    let drawn = Graphs::draw(fused.problem(), &mut fastrand::Rng::with_seed(11));
    let right: Answer = Graphs::answer(fused.problem(), &drawn).remove(0);
    let mut plan = crate::plan::Plan::new(
        fused.problem().plan.values.clone(),
        fused.problem().plan.inputs.clone(),
        fused.problem().plan.nodes.clone(),
        fused.problem().plan.outputs.clone(),
        &[],
    );
    let mutated = plan.nodes.iter_mut().filter_map(|node| mutate(&mut node.what).then_some(())).count();
    assert_eq!(mutated, 1, "one node is bent");
    plan.alone = plan.nodes.iter().map(crate::node::alone).collect();
    let wrong = Graphs::answer(&GraphProblem::new(plan.into()), &drawn).remove(0);
    let far = |(a, b): &(&f64, &f64)| (*a - *b).abs() > right.tolerance.allowed(**a);
    let count = right.values.iter().zip(&wrong.values).filter(far).count();
    count as f64 / right.values.len() as f64
}

#[test]
fn what_is_left_out_of_a_chain_shows_in_every_type() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let silu = |what: &mut What, act: Activation| match what {
            What::Element { act: own @ Activation::Silu, .. } => {
                *own = act;
                true
            }
            _ => false,
        };
        for act in [Activation::None, Activation::Relu, Activation::Gelu] {
            let share = off(dtype, |what| silu(what, act));
            assert!(share > ENOUGH, "{dtype}: {act} in the place of silu: {share}");
        }
        // The residual around the layer: the sum is left out where it is joined last.
        let last = |what: &mut What| match what {
            What::Element { join: join @ Join::Mul, .. } => {
                *join = Join::Add;
                true
            }
            _ => false,
        };
        let share = off(dtype, last);
        assert!(share > ENOUGH, "{dtype}: a sum in the place of a product: {share}");
        let gain = |what: &mut What| match what {
            What::Norm { weight, .. } => std::mem::take(weight),
            _ => false,
        };
        let share = off(dtype, gain);
        assert!(share > ENOUGH, "{dtype}: the gain left out: {share}");
        let mean = |what: &mut What| match what {
            What::Norm { kind, .. } => {
                *kind = Kind::Layer;
                true
            }
            _ => false,
        };
        let share = off(dtype, mean);
        assert!(share > ENOUGH, "{dtype}: the mean taken away: {share}");
    }
}

#[test]
fn the_bound_is_a_small_part_of_what_is_computed() {
    let session = session(Mode::Off);
    for (dtype, most) in [(DType::F32, 2e-5), (DType::F16, 1e-2), (DType::Bf16, 8e-2)] {
        let fused = layer(&mut session.graph(), 16, dtype);
        let drawn = Graphs::draw(fused.problem(), &mut fastrand::Rng::with_seed(5));
        let Answer { values, tolerance } = Graphs::answer(fused.problem(), &drawn).remove(0);
        let largest = values.iter().fold(0f64, |most, v| most.max(v.abs()));
        let bound = tolerance.allowed(largest) / largest;
        assert!(bound < most, "{dtype}: {bound} of the largest number");
    }
}

#[test]
fn one_node_is_held_to_its_own_operation() {
    let session = session(Mode::Off);
    let mut g = session.graph();
    let x = g.input("x", DType::F32, &[9, 64]);
    let y = g.softmax(x).unwrap();
    let fused = g.output("y", y).build().unwrap();
    let drawn = Graphs::draw(fused.problem(), &mut fastrand::Rng::with_seed(5));
    let own = fused.problem().plan.alone[0].task.answer(&[drawn[0].clone(), Array::none(), Array::none()]).remove(0);
    let answer = Graphs::answer(fused.problem(), &drawn).remove(0);
    assert_eq!((answer.values, answer.tolerance), (own.values, own.tolerance));
}

#[test]
fn some_rows_of_a_large_layer_say_how_far_all_of_them_may_be_off() {
    let session = session(Mode::Off);
    for dtype in [DType::F32, DType::Bf16] {
        let fused = layer_of(&mut session.graph(), 8192, [128, 64], dtype);
        let plan = &fused.problem().plan;
        let drawn = Graphs::draw(fused.problem(), &mut fastrand::Rng::with_seed(5));
        let sample = Sample::of(plan);
        assert!(sample.is_some());
        let [by_some, by_all] = [sample, None].map(|sample| answered(plan, &drawn, sample).remove(0));
        assert!(by_some.values == by_all.values, "the right answer is that of all rows");
        let one = by_some.tolerance.floor / by_all.tolerance.floor;
        assert!((0.8..1.3).contains(&one), "{dtype}: {one} of the bound");
    }
}

#[test]
fn only_rows_that_are_by_themselves_are_sampled() {
    let session = session(Mode::Off);
    let of = |make: &dyn Fn(&mut Builder<Cpu>) -> Result<Tensor, Error>| {
        let mut g = session.graph();
        let y = make(&mut g).unwrap();
        let fused = g.output("y", y).build().unwrap();
        Sample::of(&fused.problem().plan).is_some()
    };
    let (rows, n) = (1 << 14, 128);
    let x = |g: &mut Builder<Cpu>| g.input("x", DType::F32, &[rows, n]);
    let mask = |g: &mut Builder<Cpu>, rows: u64| g.input("mask", DType::F32, &[rows, n]);
    assert!(of(&|g| {
        let (x, mask) = (x(g), mask(g, rows));
        let x = g.silu(x)?;
        g.softmax_masked(x, mask, 0.5)
    }));
    for other in [
        &|g: &mut Builder<Cpu>| {
            let (x, mask) = (x(g), mask(g, 1));
            g.softmax_masked(x, mask, 0.5)
        },
        &|g: &mut Builder<Cpu>| {
            let x = x(g);
            let x = g.reshape(x, &[rows / 4, 4, n])?;
            let [cos, sin] = ["cos", "sin"].map(|name| g.input(name, DType::F32, &[rows / 4, n / 2]));
            g.rope(x, Turn::by(cos, sin))
        },
        &|g: &mut Builder<Cpu>| {
            let x = x(g);
            let y = g.silu(x)?;
            let y = g.reshape(y, &[rows / 2, 2 * n])?;
            g.silu(y)
        },
        // What all rows read is made of rows.
        &|g: &mut Builder<Cpu>| {
            let x = g.input("x", DType::F32, &[4096, 256]);
            let w = g.silu(x)?;
            g.linear(x, w)
        },
        &|g: &mut Builder<Cpu>| {
            let x = g.input("x", DType::F32, &[1, 4, 4096, 64]);
            g.attention(x, x, x, true)
        },
        &|g: &mut Builder<Cpu>| {
            let x = g.input("x", DType::F32, &[64, 4096]);
            g.silu(x)
        },
    ] as [&dyn Fn(&mut Builder<Cpu>) -> Result<Tensor, Error>; 6]
    {
        assert!(!of(other));
    }
}

#[test]
#[ignore = "tells how long the right answers of a larger layer take"]
#[allow(clippy::print_stdout)]
fn the_answer_of_a_large_layer_takes_seconds() {
    let session = session(Mode::Off);
    let fused = layer_of(&mut session.graph(), 1024, [1024, 2560], DType::Bf16);
    let drawn = Graphs::draw(fused.problem(), &mut fastrand::Rng::with_seed(5));
    for _ in 0..3 {
        let began = std::time::Instant::now();
        let answer = Graphs::answer(fused.problem(), &drawn).remove(0);
        println!("{:.2} s, floor {:.3e}", began.elapsed().as_secs_f64(), answer.tolerance.floor);
    }
}
