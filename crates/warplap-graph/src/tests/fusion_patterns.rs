//! Every cover gives what its nodes give, and hides nothing that others read.

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::device::Device;
use warplap_core::op::Op;
use warplap_cpu::Cpu;
use warplap_ops::gemm::Activation;
use warplap_ops::norm::Kind;

use super::{DType, Mode, Session};
use super::{layer, session};
use crate::chain::Chain;
use crate::plan::{NamedPartition, Plan};
use crate::problem::{GraphProblem, Graphs};
use crate::task::Tuners;
use crate::{Builder, Fused, Tensor};
use warplap_core::variant::Kernel;

const ROWS: u64 = 5;
const N: u64 = 40;

type Made = fn(&mut Builder<Cpu>, DType) -> Result<Tensor, super::Error>;

/// What a partition gives for one drawing.
pub(super) fn outputs_of(
    session: &Session,
    fused: &Fused<Cpu>,
    partition: &NamedPartition,
) -> (Vec<Array>, Vec<Array>) {
    let problem: &GraphProblem = fused.problem();
    let tuners = Tuners::new(session.device().clone(), session.store().clone(), session.settings().clone());
    let chain = Chain::new(problem, partition, &tuners).unwrap();
    let drawn = Graphs::draw(problem, &mut fastrand::Rng::with_seed(3));
    let (cpu, signature) = (session.device(), Graphs::signature(problem));
    let mut buffers: Vec<_> = (signature.slots().iter().zip(&drawn))
        .map(|(slot, array)| match slot.is_read() {
            true => cpu.upload(array).unwrap(),
            false => cpu.upload(&Array::filled(slot.dtype, slot.len(), f64::NAN)).unwrap(),
        })
        .collect();
    let mut args: Vec<Arg<'_, Cpu>> = (signature.slots().iter().zip(&mut buffers))
        .map(|(slot, buffer)| match slot.is_read() {
            true => Arg::Read(cpu.view(buffer, 0..slot.len())),
            false => Arg::Write(cpu.view_mut(buffer, 0..slot.len())),
        })
        .collect();
    chain.launch(&mut args, &()).unwrap();
    drop(args);
    let written = signature.slots().iter().zip(&buffers).filter(|(slot, _)| slot.is_written());
    let left = written.map(|(_, buffer)| cpu.download(buffer).unwrap()).collect();
    (drawn, left)
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.partitions.iter().map(|partition| partition.id.as_str()).collect()
}

/// Graphs by the cover that the test is about, which takes all of their nodes.
const GRAPHS: [(&str, Made); 17] = [
    ("norm_of_sum", |g, t| {
        let (x, r, w) = (g.input("x", t, &[ROWS, N]), g.input("r", t, &[ROWS, N]), g.input("w", t, &[N]));
        let sum = g.add(x, r)?;
        g.rms_norm(sum, w, 1e-5)
    }),
    ("add_norm", |g, t| {
        let (x, r) = (g.input("x", t, &[ROWS, N]), g.input("r", t, &[ROWS, N]));
        let (w, b) = (g.input("w", t, &[N]), g.input("b", t, &[N]));
        let sum = g.add(x, r)?;
        g.output("sum", sum);
        g.layer_norm(sum, w, b, 1e-5)
    }),
    ("norm_linear", |g, t| {
        let (x, w) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]));
        let h = g.norm(x, Kind::Rms, None, None, 1e-5)?;
        g.linear(h, w)
    }),
    ("norm_linear_gelu_add", |g, t| {
        let (x, w, r) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]), g.input("r", t, &[ROWS, 24]));
        let h = g.norm(x, Kind::Rms, None, None, 1e-3)?;
        let y = g.linear(h, w)?;
        let y = g.gelu(y)?;
        g.add(y, r)
    }),
    ("norm_gated_linear_silu", |g, t| {
        let (x, w, v) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]), g.input("v", t, &[24, N]));
        let h = g.norm(x, Kind::Rms, None, None, 1e-5)?;
        let (a, b) = (g.linear(h, w)?, g.linear(h, v)?);
        let a = g.silu(a)?;
        g.mul(a, b)
    }),
    ("linear_gelu", |g, t| {
        let (x, w) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]));
        let y = g.linear(x, w)?;
        g.gelu(y)
    }),
    ("linear_relu", |g, t| {
        let (x, w, b) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]), g.input("b", t, &[24]));
        let y = g.linear_bias(x, w, b)?;
        g.relu(y)
    }),
    ("matmul_silu", |g, t| {
        let (x, w) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[N, 24]));
        let y = g.matmul(x, w)?;
        g.silu(y)
    }),
    ("linear_add", |g, t| {
        let (x, w, r) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]), g.input("r", t, &[ROWS, 24]));
        let y = g.linear(x, w)?;
        g.add(r, y)
    }),
    ("linear_mul", |g, t| {
        let (x, w, r) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]), g.input("r", t, &[ROWS, 24]));
        let y = g.linear(x, w)?;
        g.mul(y, r)
    }),
    ("linear_silu_mul", |g, t| {
        let (x, w, r) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]), g.input("r", t, &[ROWS, 24]));
        let y = g.linear(x, w)?;
        let y = g.silu(y)?;
        g.mul(r, y)
    }),
    ("linear_gelu_mul", |g, t| {
        let (x, w, r) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]), g.input("r", t, &[ROWS, 24]));
        let y = g.linear(x, w)?;
        g.gated(y, r, Activation::Gelu)
    }),
    ("gated_linear_silu", |g, t| {
        let (x, w, u) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]), g.input("u", t, &[24, N]));
        let (a, b) = (g.linear(x, w)?, g.linear(x, u)?);
        let a = g.silu(a)?;
        g.mul(b, a)
    }),
    ("gated_matmul_gelu", |g, t| {
        let (x, w, u) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[N, 24]), g.input("u", t, &[N, 24]));
        let (a, b) = (g.matmul(x, w)?, g.matmul(x, u)?);
        g.gated(a, b, Activation::Gelu)
    }),
    ("gated_linear", |g, t| {
        let (x, w, u) = (g.input("x", t, &[ROWS, N]), g.input("w", t, &[24, N]), g.input("u", t, &[24, N]));
        let (a, b) = (g.linear(x, w)?, g.linear(x, u)?);
        g.mul(a, b)
    }),
    ("silu_mul", |g, t| {
        let (a, b) = (g.input("a", t, &[ROWS, N]), g.input("b", t, &[ROWS, N]));
        let a = g.silu(a)?;
        g.mul(b, a)
    }),
    ("softmax_mask", |g, t| {
        let (x, mask) = (g.input("x", t, &[ROWS, N]), g.input("mask", t, &[ROWS, N]));
        let s = g.add(x, mask)?;
        g.softmax(s)
    }),
];

#[test]
fn every_cover_gives_what_its_nodes_give() {
    let session = session(Mode::Off);
    for (name, make) in GRAPHS {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let mut g = session.graph();
            let y = make(&mut g, dtype).unwrap();
            let fused = g.output("y", y).build().unwrap();
            let plan = &fused.problem().plan;
            let whole = plan.partitions.iter().find(|p| p.id == name);
            let whole = whole.unwrap_or_else(|| panic!("{name} is not among {:?}", ids(plan)));
            assert_eq!(plan.calls(whole).len(), 1, "{name}: one launch");
            assert_eq!(plan.calls(&plan.unfused()).len(), plan.nodes.len(), "{name}: a launch a node");
            for partition in &plan.partitions {
                let (drawn, left) = outputs_of(&session, &fused, partition);
                let share = super::share(&fused, &drawn, &left);
                assert!(share <= 1.0, "{name} {dtype} by {}: {share} of the allowed error", partition.id);
            }
        }
    }
}

#[test]
fn all_partitions_of_a_layer_give_the_same() {
    let session = session(Mode::Off);
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        let fused = layer(&mut session.graph(), 7, dtype);
        let plan = &fused.problem().plan;
        assert_eq!(plan.partitions[0].id, "apart");
        let kinds =
            ["add_norm", "gated_linear_silu", "linear_add", "silu_mul", "linear_silu_mul", "linear_mul", "linear_silu"];
        for kind in kinds {
            assert!(ids(plan).contains(&kind), "{kind} is not among {:?}", ids(plan));
        }
        assert!(ids(plan).iter().any(|id| id.split('+').count() == 3), "{:?}", ids(plan));
        for partition in &plan.partitions {
            let (drawn, left) = outputs_of(&session, &fused, partition);
            let share = super::share(&fused, &drawn, &left);
            assert!(share <= 1.0, "{dtype} by {}: {share} of the allowed error", partition.id);
        }
    }
}

#[test]
fn what_others_read_is_kept_or_not_covered() {
    let session = session(Mode::Off);
    let mut g = session.graph();
    let (x, w) = (g.input("x", DType::F32, &[ROWS, N]), g.input("w", DType::F32, &[24, N]));
    let y = g.linear(x, w).unwrap();
    let z = g.gelu(y).unwrap();
    let fused = g.output("z", z).output("y", y).build().unwrap();
    assert_eq!(ids(&fused.problem().plan), ["apart"], "the product is an output: nothing may hide it");
    let (drawn, left) = super::run(&fused, 4);
    assert!(left.len() == 2 && super::share(&fused, &drawn, &left) <= 1.0);

    // The sum is read by the last node, in the middle of the chain.
    let fused = layer(&mut session.graph(), 3, DType::F32);
    let plan = &fused.problem().plan;
    let norm = plan.covers.iter().find(|f| f.name == "add_norm").unwrap();
    assert_eq!((norm.calls[0].writes().len(), norm.outputs.len()), (2, 2));
}

#[test]
fn a_norm_of_other_rows_than_a_product_has_is_not_taken_in() {
    let session = session(Mode::Off);
    let mut g = session.graph();
    let (x, w) = (g.input("x", DType::F32, &[ROWS, N]), g.input("w", DType::F32, &[24, N / 2]));
    let h = g.norm(x, Kind::Rms, None, None, 1e-5).unwrap();
    let h = g.reshape(h, &[2 * ROWS, N / 2]).unwrap();
    let y = g.linear(h, w).unwrap();
    let fused = g.output("y", y).build().unwrap();
    assert_eq!(ids(&fused.problem().plan), ["apart"]);
    let (drawn, left) = super::run(&fused, 4);
    assert!(super::share(&fused, &drawn, &left) <= 1.0);
}

#[test]
fn memory_between_launches_is_used_again_once_nobody_reads_it() {
    let session = session(Mode::Off);
    let fused = layer(&mut session.graph(), 3, DType::F32);
    let tuners = Tuners::new(session.device().clone(), session.store().clone(), session.settings().clone());
    let bytes = |id: &str| {
        let partition = fused.problem().plan.partitions.iter().find(|p| p.id == id).unwrap();
        Chain::new(fused.problem(), partition, &tuners).unwrap().bytes()
    };
    // The sum and the norm, which the last product takes over; of gate, silu, up and their product one lies where the
    // gate did.
    assert_eq!(bytes("apart"), 4 * 3 * (2 * 48 + 3 * 80));
    assert_eq!(bytes("gated_linear_silu"), 4 * 3 * (2 * 48 + 80));
}

#[test]
fn a_tensor_joined_with_itself_is_covered_by_nobody() {
    let session = session(Mode::Off);
    let mut g = session.graph();
    let (x, w) = (g.input("x", DType::F32, &[ROWS, N]), g.input("w", DType::F32, &[24, N]));
    let y = g.linear(x, w).unwrap();
    let a = g.silu(y).unwrap();
    let z = g.mul(a, y).unwrap();
    let fused = g.output("z", z).build().unwrap();
    assert_eq!(ids(&fused.problem().plan), ["apart", "silu_mul"]);
    let (drawn, left) = super::run(&fused, 4);
    assert!(super::share(&fused, &drawn, &left) <= 1.0);
}
