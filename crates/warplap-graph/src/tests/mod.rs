//! Graphs on the CPU: what covers give, who races, what is kept, and what is said.

mod answers;
mod attention_nodes;
mod deciding;
mod errors;
mod explain;
mod fusion_patterns;
mod on_device;
mod predict;
mod racing;
mod random;

use std::sync::Arc;

use warplap_core::array::Array;
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::settings::{Budget, Mode, Settings};
use warplap_core::store::Store;
use warplap_cpu::Cpu;

use super::predict::RacedSizes;
use super::problem::Graphs;
use super::sized::Template;
use super::{Builder, Fused, Tuners};

/// What a session has that graphs need.
struct Session {
    device: Arc<Cpu>,
    store: Store,
    settings: Settings,
    raced: Arc<RacedSizes>,
}

impl Session {
    fn over(device: Arc<Cpu>, store: Store, settings: Settings) -> Self {
        Session { device, store, settings, raced: Arc::default() }
    }

    fn device(&self) -> &Arc<Cpu> {
        &self.device
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn graph(&self) -> Builder<Cpu> {
        let tuners = Tuners::new(self.device.clone(), self.store.clone(), self.settings.clone());
        Builder::new(tuners.knowing(self.raced.clone()))
    }
}

/// A session in memory that decides quickly.
fn session(mode: Mode) -> Session {
    let budget = Budget { seconds: 0.25, ..Budget::default() };
    let settings = Settings { mode, budget, ..Settings::default() };
    Session::over(Cpu::with_threads(2).into(), Store::memory(), settings)
}

/// A gated layer with its norm, and a residual around it: eight nodes, and covers that exclude each other.
fn layer(g: &mut Builder<Cpu>, rows: u64, dtype: DType) -> Fused<Cpu> {
    layer_of(g, rows, [48, 80], dtype)
}

/// The same in other widths.
fn layer_of(g: &mut Builder<Cpu>, rows: u64, [n, wide]: [u64; 2], dtype: DType) -> Fused<Cpu> {
    let (x, r) = (g.input("x", dtype, &[rows, n]), g.input("r", dtype, &[rows, n]));
    let gain = g.input("gain", dtype, &[n]);
    let [gate, up] = ["gate", "up"].map(|name| g.input(name, dtype, &[wide, n]));
    let down = g.input("down", dtype, &[n, wide]);
    let sum = g.add(x, r).unwrap();
    let h = g.rms_norm(sum, gain, 1e-6).unwrap();
    let a = g.linear(h, gate).unwrap();
    let a = g.silu(a).unwrap();
    let b = g.linear(h, up).unwrap();
    let ab = g.mul(a, b).unwrap();
    let y = g.linear(ab, down).unwrap();
    let y = g.add(y, sum).unwrap();
    g.output("y", y).build().unwrap()
}

/// With other covers than the usual ones.
fn with(session: &Session, templates: &[Template]) -> Builder<Cpu> {
    session.graph().with_templates(templates)
}

/// What a graph is given, drawn from a seed, and what it gives.
fn run(fused: &Fused<Cpu>, seed: u64) -> (Vec<Array>, Vec<Array>) {
    let drawn = Graphs::draw(fused.problem(), &mut fastrand::Rng::with_seed(seed));
    let cpu = Cpu::with_threads(1);
    let signature = Graphs::signature(fused.problem());
    let (slots, inputs) = (signature.slots(), fused.problem().plan.inputs.len());
    let arguments: Vec<_> = drawn[..inputs].iter().map(|array| cpu.upload(array).unwrap()).collect();
    let blank = |i: usize| cpu.upload(&Array::filled(slots[i].dtype, slots[i].len(), f64::NAN)).unwrap();
    let mut left: Vec<_> = (inputs..slots.len()).map(blank).collect();
    let inputs_by_name = arguments.iter().zip(slots).map(|(b, slot)| (&*slot.name, cpu.view(b, 0..slot.len())));
    let outputs_by_name =
        left.iter_mut().zip(&slots[inputs..]).map(|(b, slot)| (&*slot.name, cpu.view_mut(b, 0..slot.len())));
    fused.run(inputs_by_name, outputs_by_name).unwrap();
    (drawn, left.iter().map(|buffer| cpu.download(buffer).unwrap()).collect())
}

/// The largest share of the allowed error over all outputs.
fn share(fused: &Fused<Cpu>, drawn: &[Array], left: &[Array]) -> f64 {
    let answers = Graphs::answer(fused.problem(), drawn);
    let of = |(left, answer): (&Array, &warplap_core::op::Answer)| {
        let each = left.to_f64().into_iter().zip(&answer.values);
        each.map(|(got, right)| (got - right).abs() / answer.tolerance.allowed(*right))
            .fold(0.0, |most, share| if share > most || share.is_nan() { share } else { most })
    };
    left.iter().zip(&answers).map(of).fold(0.0, f64::max)
}
