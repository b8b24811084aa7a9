//! Right answers where the inputs are: what a device's oracles give node by node is what the host gives, to the error
//! that is allowed; nothing is kept that nobody reads.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use warplap_core::array::Array;
use warplap_core::device::Device;
use warplap_core::op::{Answer, Op};
use warplap_core::oracle::{FarAnswer, Inputs};
use warplap_core::shift::Shift;
use warplap_core::tolerance::Tolerance;
use warplap_cpu::{Buffer, Slice};
use warplap_ops::gemm::Activation;

use super::{Cpu, DType, Error, Mode};
use super::{layer, session};
use crate::answer::{Answers, Place, answered};
use crate::node::Call;
use crate::problem::Graphs;
use crate::task::Task;
use crate::{Builder, Fused, Turn, host, on_device};

/// An oracle for every task, on host memory.
fn ask(task: &Task, inputs: &Inputs<'_, Cpu>) -> Result<Vec<FarAnswer<Cpu>>, Error> {
    let arrays: Vec<Array> = inputs.iter().map(|view| view.map_or(Array::none(), |view| view.to_array())).collect();
    let is_wide = |view: &Slice<'_>| view.dtype() == DType::F64 || view.dtype().is_whole();
    assert!(inputs.iter().flatten().all(is_wide), "{}: nothing is rounded", task.text());
    let far =
        |Answer { values, tolerance }| Ok(FarAnswer { values: Cpu::upload(&cpu(), &Array::F64(values))?, tolerance });
    task.answer(&arrays).into_iter().map(far).collect()
}

fn cpu() -> Cpu {
    Cpu::with_threads(1)
}

fn views<'a>(drawn: &[Array], buffers: &'a [Buffer]) -> Vec<Option<Slice<'a>>> {
    let view = |(array, buffer): (&Array, &'a Buffer)| (!array.is_empty()).then(|| cpu().view(buffer, 0..array.len()));
    drawn.iter().zip(buffers).map(view).collect()
}

/// A projection of heads that are turned by given positions, attention to them, and a scaled and masked softmax.
fn heads(g: &mut Builder<Cpu>, dtype: DType) -> Fused<Cpu> {
    let (b, s, h, d) = (2, 5, 2, 6);
    let mut input = |name: &str, shape: &[u64]| g.input(name, dtype, shape);
    let (x, wq, wk) = (input("x", &[b, s, 24]), input("wq", &[h * d, 24]), input("wk", &[h * d, 24]));
    let (cos, sin, mask) = (input("cos", &[7, d / 2]), input("sin", &[7, d / 2]), input("mask", &[h * d]));
    let positions = g.input("positions", DType::I64, &[b, s]);
    let [q, k] = [wq, wk].map(|w| g.linear(x, w).and_then(|y| g.reshape(y, &[b, s, h, d])).unwrap());
    let (q, k) = g.rope_pair(q, k, Turn::by(cos, sin).at(positions)).unwrap();
    let y = g.attention_by_rows(q, k, k, true).unwrap();
    let y = g.reshape(y, &[b, s, h * d]).unwrap();
    let y = g.softmax_masked(y, mask, 3.0).unwrap();
    // What is read by others is seen too.
    g.output("y", y).output("k", k).build().unwrap()
}

/// A pair of x with itself, whose halves are read again.
fn twice(g: &mut Builder<Cpu>, dtype: DType) -> Fused<Cpu> {
    let (x, gain) = (g.input("x", dtype, &[9, 40]), g.input("gain", dtype, &[40]));
    let (a, b) = (g.gelu(x).unwrap(), g.rms_norm(x, gain, 1e-5).unwrap());
    let c = g.gated(a, a, Activation::Silu).unwrap();
    let d = g.add(b, c).unwrap();
    let d = g.add(d, a).unwrap();
    g.output("d", d).output("b", b).build().unwrap()
}

/// Wide enough for one drawing of errors.
fn wide(g: &mut Builder<Cpu>, dtype: DType) -> Fused<Cpu> {
    let x = g.input("x", dtype, &[64, 300]);
    let y = g.silu(x).unwrap();
    let y = g.softmax(y).unwrap();
    g.output("y", y).build().unwrap()
}

#[test]
fn what_oracles_give_node_by_node_is_what_the_host_gives() {
    let session = session(Mode::Off);
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for make in [heads, twice, wide, |g: &mut Builder<Cpu>, dtype| layer(g, 7, dtype)] {
            let fused = make(&mut session.graph(), dtype);
            let (plan, drawn) =
                (&fused.problem().plan, Graphs::draw(fused.problem(), &mut fastrand::Rng::with_seed(9)));
            let buffers: Vec<Buffer> = drawn.iter().map(|array| cpu().upload(array).unwrap()).collect();
            let far = on_device::answers(plan, &views(&drawn, &buffers), &cpu(), ask).unwrap();
            let near = host::answered(plan, &drawn, None);
            assert_eq!(far.len(), near.len());
            assert!(far[0].tolerance.floor > 0.0, "what lies before the end is off too");
            for (far, near) in far.iter().zip(near) {
                let values = cpu().download(&far.values).unwrap();
                assert!(values == Array::F64(near.values), "{dtype} {}", fused.explain());
                assert_eq!(far.tolerance, near.tolerance);
            }
        }
    }
}

#[test]
fn who_cannot_answer_leaves_it_to_the_host() {
    let session = session(Mode::Off);
    let fused = twice(&mut session.graph(), DType::F32);
    let (plan, drawn) = (&fused.problem().plan, Graphs::draw(fused.problem(), &mut fastrand::Rng::with_seed(9)));
    let buffers: Vec<Buffer> = drawn.iter().map(|array| cpu().upload(array).unwrap()).collect();
    let mut views = views(&drawn, &buffers);
    let refuses = |task: &Task, inputs: &Inputs<'_, Cpu>| match task {
        Task::Norm(_) => Err(Error::Device("too large".into())),
        _ => ask(task, inputs),
    };
    let said = on_device::answers(plan, &views, &cpu(), refuses).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(said.contains("too large"), "{said}");
    views[0] = None;
    let said = on_device::answers(plan, &views, &cpu(), ask).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(said.contains("the input 'x' is not there"), "{said}");
    // And where no operation has an oracle, nobody is asked.
    assert!(fused.tuner().catalog().oracle().is_none());
}

#[cfg(feature = "cuda")]
#[test]
fn every_node_has_an_oracle_on_a_gpu() {
    fn has<O: warplap_core::catalog::Raced<warplap_cuda::Cuda>>() -> bool {
        O::catalog().oracle().is_some_and(|oracle| !oracle.is_alone())
    }
    use warplap_ops::exports::{Attention, Gated, Gemm, Norm, Rope, Softmax};
    assert!(has::<Gemm>() && has::<Gated>() && has::<Norm>());
    assert!(has::<Softmax>() && has::<Attention>() && has::<Rope>());
}

/// Counts the numbers there are, and the most there were.
#[derive(Default)]
struct Counting(Rc<Cell<(usize, usize)>>);

struct Token(Rc<Cell<(usize, usize)>>);

impl Counting {
    fn token(&self) -> Token {
        let (now, most) = self.0.get();
        self.0.set((now + 1, most.max(now + 1)));
        Token(self.0.clone())
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let (now, most) = self.0.get();
        self.0.set((now - 1, most));
    }
}

impl Place for Counting {
    type Numbers = Token;
    type Trouble = Infallible;

    fn answer(&self, call: &Call, all: &mut [Option<Token>]) -> Result<Answers<Token>, Infallible> {
        assert!(call.reads().iter().all(|value| all[*value].is_some()), "what is read is there");
        let each = |_| (self.token(), Tolerance { relative: 0.0, floor: 1.0 });
        Ok(call.writes().into_iter().map(each).collect())
    }

    fn copied(&self, _: &Token) -> Result<Token, Infallible> {
        Ok(self.token())
    }

    fn shift(&self, _: &mut Token, _: Shift, _: usize, _: Tolerance) -> Result<(), Infallible> {
        Ok(())
    }

    fn distance(&self, _: &Token, _: &Token) -> Result<f64, Infallible> {
        Ok(2.0)
    }
}

#[test]
fn numbers_go_as_soon_as_nobody_reads_them() {
    let session = session(Mode::Off);
    let mut g = session.graph();
    let x = g.input("x", DType::F32, &[4, 64]);
    let y = (0..12).fold(x, |y, _| g.silu(y).unwrap());
    let fused = g.output("y", y).build().unwrap();
    let (plan, place) = (&fused.problem().plan, Counting::default());
    let mut all: Vec<Option<Token>> = plan.values.iter().map(|_| None).collect();
    all[plan.inputs[0].1] = Some(place.token());
    let Ok(right) = answered(&place, plan, &mut all);
    // The input, what is right, and what a node reads and writes.
    assert_eq!(place.0.get(), (2, 4));
    assert!(right.len() == 1 && right[0].1.floor == 1.0 + 1.5 * 2.0);
}
