//! The graph, followed node by node in double precision, gives the right answer; and where the library is found, its
//! heuristics know the graph.

use warplap_core::array::Array;
use warplap_core::op::Op;
use warplap_cuda::{Cuda, CudaError, Dnn, DnnNode, DnnPlace, DnnPlan, DnnTensorSpec};

use super::*;
use crate::attention::Attention;

/// A tensor's elements in row-major order.
type Values = Vec<f64>;

fn places(dims: [u64; 4]) -> impl Iterator<Item = [u64; 4]> {
    let [a, b, c, d] = dims;
    (0..a * b * c * d).map(move |at| [at / (b * c * d), at / (c * d) % b, at / d % c, at % d])
}

/// The element of a tensor that another one's place falls on: dimensions of one element are shared, and so are heads.
fn shared(tensor: &DnnTensorSpec, of: [u64; 4], place: [u64; 4]) -> usize {
    let along = |i: usize| place[i] / (of[i] / tensor.dims[i]).max(1) % tensor.dims[i];
    (0..4).fold(0, |at, i| at * tensor.dims[i] + along(i)) as usize
}

/// Follows a graph over arrays of its tensors in memory, in their order; gives the values of all tensors.
fn followed(g: &DnnGraph, memory: &[Option<&Array>]) -> Vec<Values> {
    let mut memory = memory.iter();
    let mut all: Vec<Values> = Vec::new();
    for tensor in g.tensors() {
        let offset = |place: [u64; 4]| (0..4).map(|i| place[i] * tensor.strides[i]).sum::<u64>() as usize;
        let input = match tensor.place {
            DnnPlace::Memory(_) => memory.next().copied().flatten(),
            _ => None,
        };
        all.push(match (tensor.place, input) {
            (DnnPlace::Value(bits), _) if tensor.dtype == DType::I32 => vec![f64::from(bits as i32)],
            (DnnPlace::Value(bits), _) => vec![f64::from(f32::from_bits(bits))],
            (_, Some(array)) => places(tensor.dims).map(|place| array.at(offset(place))).collect(),
            _ => vec![f64::NAN; tensor.dims.iter().product::<u64>() as usize],
        });
    }
    assert!(memory.next().is_none(), "more slots than tensors in memory");
    for node in g.nodes() {
        let (to, values) = match node {
            DnnNode::Matmul([a, b, c]) => (*c, product(g, &all, [*a, *b, *c])),
            DnnNode::Reduce { mode, x, y } => {
                let width = g.tensor(*x).dims[3] as usize;
                let one = |line: &[f64]| match mode {
                    DnnReduction::Sum => line.iter().sum(),
                    DnnReduction::Max => line.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                };
                (*y, all[x.0].chunks_exact(width).map(one).collect())
            }
            DnnNode::Pointwise { mode, from, y, axis, .. } => {
                let dims = g.tensor(*y).dims;
                let read = |from: &Option<DnnTensor>, place| {
                    from.map_or(f64::NAN, |t| all[t.0][shared(g.tensor(t), dims, place)])
                };
                let one = |place: [u64; 4]| {
                    let [x, b, t] = from.each_ref().map(|from| read(from, place));
                    let is = |yes: bool| f64::from(u8::from(yes));
                    match mode {
                        DnnMode::Add => x + b,
                        DnnMode::Sub => x - b,
                        DnnMode::Mul => x * b,
                        DnnMode::Div => x / b,
                        DnnMode::Exp => x.exp(),
                        DnnMode::Log => x.ln(),
                        DnnMode::Tanh => x.tanh(),
                        DnnMode::Greater => is(x > b),
                        DnnMode::AtLeast => is(x >= b),
                        DnnMode::Select => [b, x][usize::from(t != 0.0)],
                        DnnMode::Index => place[axis.unwrap() as usize] as f64,
                    }
                };
                (*y, places(dims).map(one).collect())
            }
        };
        all[to.0] = values;
    }
    all
}

/// Products of the last two dimensions; heads of b serve as many of a as there are more.
fn product(g: &DnnGraph, all: &[Values], [a, b, c]: [DnnTensor; 3]) -> Values {
    let [left, right, to] = [a, b, c].map(|t| *g.tensor(t));
    assert_eq!([left.dims[3], left.dims[2], right.dims[3]], [right.dims[2], to.dims[2], to.dims[3]]);
    let [_, heads, _, _] = to.dims;
    let one = |[batch, head, row, column]: [u64; 4]| {
        let kv = head / (heads / right.dims[1]);
        let line = (batch * heads + head) * left.dims[2] + row;
        let from = (batch * right.dims[1] + kv) * right.dims[2];
        let along = 0..left.dims[3];
        along
            .map(|i| {
                all[a.0][(line * left.dims[3] + i) as usize] * all[b.0][((from + i) * right.dims[3] + column) as usize]
            })
            .sum()
    };
    places(to.dims).map(one).collect()
}

#[test]
fn the_graph_followed_node_by_node_gives_the_right_answer() {
    for text in [
        "b=2,h=4,hkv=2,sq=3,sk=5,d=8,dv=16,dtype=bf16,lse=true",
        "b=2,h=3,sq=6,sk=9,d=8,dtype=f16,causal=true,layout=bshd,lse=true",
        "h=2,sq=5,sk=9,d=8,dtype=f16,causal=true,corner=bottom",
        "h=2,sq=9,sk=5,d=8,dtype=bf16,causal=true,corner=bottom,lse=true",
        "h=2,sq=5,sk=8,d=8,dtype=bf16,corner=bottom",
        "h=2,sq=9,d=8,dtype=bf16,causal=true,window=2,lse=true",
        "h=2,sq=9,d=8,dtype=bf16,causal=true,corner=bottom,window=1,softcap=2,scale=3",
    ] {
        let p = Attention::parse(text).unwrap();
        let inputs = Attention::draw(&p, &mut fastrand::Rng::with_seed(5));
        let right = Attention::answer(&p, &inputs);
        let (g, slots) = graph(&p);
        let written = [slot::OUT, slot::LSE];
        let memory: Vec<_> = slots.iter().map(|s| (!written.contains(s)).then(|| &inputs[*s])).collect();
        let all = followed(&g, &memory);
        let tensors = g.tensors().iter().zip(&all).filter(|(t, _)| matches!(t.place, DnnPlace::Memory(_)));
        let outputs = tensors.zip(&slots).filter(|(_, s)| written.contains(s));
        let mut count = 0;
        for (((tensor, values), _), right) in outputs.zip(&right) {
            for (place, value) in places(tensor.dims).zip(values) {
                let at = (0..4).map(|i| place[i] * tensor.strides[i]).sum::<u64>() as usize;
                let expected = right.values[at];
                // The library writes zeros where a query sees nothing; the plain rules of numbers do not.
                let blind = value.is_nan() && (expected == 0.0 || expected == f64::NEG_INFINITY);
                let same = *value == expected || (value - expected).abs() < 1e-9;
                assert!(blind || same, "{text}: {place:?}: {value}, not {expected}");
            }
            count += 1;
        }
        assert_eq!(count, right.len(), "{text}");
    }
}

/// An H200 in the library's own words.
const CHIP: &str = r#"{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,
"multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,
"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,
"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":150109880320,
"smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,"cudaDeviceId":0,"deviceVer":900,
"driverVer":13000,"deviceName":"NVIDIA H200"}"#;

#[test]
fn where_the_library_is_found_it_takes_the_graph_and_with_a_driver_its_engines_know_it() {
    if Dnn::get().is_err() {
        return;
    }
    // Without a driver nothing is proposed, however well a chip is described.
    let driver = !matches!(Cuda::count(), Err(CudaError::NoDriver));
    for text in [
        "b=2,h=32,hkv=8,sq=512,d=128,dtype=bf16,causal=true,lse=true",
        "h=4,sq=197,sk=333,d=64,dtype=f16,causal=true,corner=bottom,layout=bshd",
        "h=8,sq=512,d=128,dtype=bf16,window=100,causal=true",
        "h=32,hkv=8,sq=1,sk=1024,d=128,dtype=bf16",
    ] {
        let (graph, _) = graph(&Attention::parse(text).unwrap());
        let made = DnnPlan::rehearse(&graph, 0, CHIP).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(made.is_some(), driver, "{text}");
        let whole = |said: &[u8]| said.starts_with(b"{") && said.ends_with(b"}");
        assert!(made.is_none_or(|(_, said)| whole(&said)), "{text}: a plan's text is not whole");
        assert_eq!(DnnPlan::rehearse(&graph, 15, CHIP), Ok(None), "{text}");
    }
}
