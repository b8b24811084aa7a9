//! Attention as a graph that cuDNN's fused engines know: a problem comes in; tensors and nodes go out. The engines look
//! for exactly this order of nodes, the logarithm and the sum behind it included where nobody wants log-sum-exps.

use warplap_core::dtype::DType;
use warplap_cuda::{DnnGraph, DnnMode, DnnReduction, DnnTensor};

use crate::attention::{ALIGN, AttentionProblem, Corner, Strides, slot};

/// Bytes that log-sum-exps lie on: their slot asks for no more.
const SUM_ALIGN: u64 = 4;

/// The graph of a problem, and the slots of its tensors in memory in the order in which a launch names them.
pub(super) fn graph(p: &AttentionProblem) -> (DnnGraph, Vec<usize>) {
    let (mut g, mut slots) = (DnnGraph::default(), vec![slot::Q, slot::K, slot::V, slot::OUT]);
    let steps = |s: Strides| [s.batch, s.head, s.row, 1].map(|step| step as u64);
    let q = g.memory(p.dtype, [p.b, p.h, p.sq, p.d], steps(p.q_strides()), ALIGN);
    // K is turned by its strides: products are of rows and columns.
    let [batch, head, row, one] = steps(p.k_strides());
    let k = g.memory(p.dtype, [p.b, p.hkv, p.d, p.sk], [batch, head, one, row], ALIGN);
    let v = g.memory(p.dtype, [p.b, p.hkv, p.sk, p.dv], steps(p.v_strides()), ALIGN);
    let o = g.memory(p.dtype, [p.b, p.h, p.sq, p.dv], steps(p.o_strides()), ALIGN);
    let scores = [p.b, p.h, p.sq, p.sk];
    let products = g.inner(DType::F32, scores);
    g.matmul(q, k, products);
    let scale = g.float(p.scale());
    let mut s = g.of_two(DnnMode::Mul, products, scale);
    if let Some(cap) = p.softcap() {
        let cap = g.float(cap);
        let share = g.of_two(DnnMode::Div, s, cap);
        let tanh = g.of(DnnMode::Tanh, share);
        s = g.of_two(DnnMode::Mul, tanh, cap);
    }
    if p.causal {
        s = before(&mut g, p, s);
    }
    if let Some(window) = p.window {
        s = within(&mut g, s, window);
    }
    let most = g.reduce(DnnReduction::Max, s);
    let less = g.of_two(DnnMode::Sub, s, most);
    let grown = g.of(DnnMode::Exp, less);
    let total = g.reduce(DnnReduction::Sum, grown);
    let log = g.of(DnnMode::Log, total);
    let rows = [p.b, p.h, p.sq, 1];
    let sums = match p.lse {
        true => {
            slots.push(slot::LSE);
            g.memory(DType::F32, rows, [p.h * p.sq, p.sq, 1, 1], SUM_ALIGN)
        }
        false => g.inner(DType::F32, rows),
    };
    g.node(DnnMode::Add, [Some(most), Some(log), None], sums, DType::F32);
    // Weights are multiplied in the type of the values.
    let weights = g.inner(p.dtype, scores);
    g.node(DnnMode::Div, [Some(grown), Some(total), None], weights, DType::F32);
    g.matmul(weights, v, o);
    (g, slots)
}

/// Scores of keys that are not behind a query's own place; -inf elsewhere.
fn before(g: &mut DnnGraph, p: &AttentionProblem, s: DnnTensor) -> DnnTensor {
    let [mut rows, columns] = [2, 3].map(|axis| g.index(s, axis));
    if p.corner == Corner::Bottom {
        // The engines know the last corner by both lengths, one after the other.
        for (mode, length) in [(DnnMode::Add, p.sk), (DnnMode::Sub, p.sq)] {
            let length = g.whole(length as i32);
            rows = g.of_two_in(mode, rows, length, DType::I32);
        }
    }
    let seen = g.of_two_in(DnnMode::AtLeast, rows, columns, DType::Bool);
    let never = g.float(f32::NEG_INFINITY);
    g.select(s, never, seen)
}

/// Scores of keys at most so many places before a query, which are as many as keys; -inf elsewhere.
fn within(g: &mut DnnGraph, s: DnnTensor, window: u64) -> DnnTensor {
    let [rows, columns] = [2, 3].map(|axis| g.index(s, axis));
    // The engines know a window by a number behind the point that places stay below.
    let reach = g.float((window + 1) as f32);
    let columns = g.of_two(DnnMode::Add, columns, reach);
    let seen = g.of_two_in(DnnMode::Greater, columns, rows, DType::Bool);
    let never = g.float(f32::NEG_INFINITY);
    g.select(s, never, seen)
}

#[cfg(test)]
#[path = "cudnn_tests.rs"]
mod tests;
