//! What is said of a graph, a tensor or an argument that cannot be: who, what was found, what is expected.

use super::session;
use super::{Cpu, DType, Error, Mode};
use crate::{Builder, Fused, Turn};

fn said(make: impl Fn(&mut Builder<Cpu>) -> Result<Fused<Cpu>, Error>) -> String {
    let session = session(Mode::Off);
    make(&mut session.graph()).err().expect("it cannot be built").to_string()
}

#[test]
fn a_graph_that_cannot_be_says_which_node_and_why() {
    type Make = fn(&mut Builder<Cpu>) -> Result<Fused<Cpu>, Error>;
    let cases: [(Make, &str); 17] = [
        (
            |g| {
                let (x, w) = (g.input("x", DType::F32, &[4, 8]), g.input("w", DType::F32, &[8, 16]));
                let y = g.linear(x, w)?;
                g.output("y", y).build()
            },
            "argument 'linear, w': is f32[8, 16], expected [n, k] with k = 8, the last size of x; matmul takes it the \
             other way round",
        ),
        (
            |g| {
                let (x, r) = (g.input("x", DType::F32, &[4, 8]), g.input("r", DType::F32, &[1, 8]));
                let y = g.relu(x)?;
                let y = g.add(y, r)?;
                g.output("y", y).build()
            },
            "argument 'add, b': is f32[1, 8], expected [4, 8], as a: nothing is repeated, reshape or write it out",
        ),
        (
            |g| {
                let (x, r) = (g.input("x", DType::F32, &[4, 8]), g.input("r", DType::F16, &[4, 8]));
                let y = g.mul(x, r)?;
                g.output("y", y).build()
            },
            "argument 'mul, b': is f16[4, 8], expected f32 as a is: a node has one type, convert one of them",
        ),
        (
            |g| {
                let (x, w) = (g.input("x", DType::F32, &[4, 8]), g.input("w", DType::F32, &[4]));
                let y = g.rms_norm(x, w, 1e-5)?;
                g.output("y", y).build()
            },
            "argument 'rms_norm, weight': is f32[4], expected [8], one number a column of x",
        ),
        (
            |g| {
                let (x, w) = (g.input("x", DType::F32, &[4, 8]), g.input("w", DType::F32, &[8]));
                let y = g.rms_norm(x, w, 0.0)?;
                g.output("y", y).build()
            },
            "argument 'rms_norm, eps': is 0, expected a number from 1e-20 to 1",
        ),
        (
            |g| {
                let x = g.input("x", DType::I32, &[4, 8]);
                let y = g.softmax(x)?;
                g.output("y", y).build()
            },
            "argument 'softmax': field 'dtype' is 'i32': expected one of f32, f16, bf16",
        ),
        (
            |g| {
                let (x, unread) = (g.input("x", DType::F32, &[4, 8]), g.input("unread", DType::F32, &[4, 8]));
                g.relu(unread)?;
                let y = g.relu(x)?;
                g.output("y", y).build()
            },
            "argument 'unread, input': no output needs it: leave it out, or say the output that does",
        ),
        (
            |g| {
                let (x, _) = (g.input("x", DType::F32, &[4, 8]), g.input("x", DType::F32, &[4, 8]));
                let y = g.relu(x)?;
                g.output("y", y).build()
            },
            "argument 'x, name': is there twice or empty, expected a name of its own: inputs and outputs are found by \
             it",
        ),
        (
            |g| {
                let x = g.input("x", DType::F32, &[4, 8]);
                g.output("y", x).build()
            },
            "argument 'y, tensor': is an input, expected what a node gives: leave it out, the caller has it",
        ),
        (
            |g| {
                let x = g.input("x", DType::F32, &[4, 8]);
                g.relu(x)?;
                g.build()
            },
            "argument 'the graph, outputs': there are none, expected one: say output(name, tensor)",
        ),
        (
            |g| {
                let mut other = session(Mode::Off).graph();
                let (x, r) = (g.input("x", DType::F32, &[4, 8]), other.input("r", DType::F32, &[4, 8]));
                let y = g.add(x, r)?;
                g.output("y", y).build()
            },
            "argument 'add, b': is of another graph, expected a tensor of this builder",
        ),
        (
            |g| {
                let (x, mask) = (g.input("x", DType::F32, &[2, 4, 8]), g.input("mask", DType::F32, &[3, 8]));
                let y = g.softmax_masked(x, mask, 1.0)?;
                g.output("y", y).build()
            },
            "argument 'softmax, mask': is f32[3, 8], expected [2, 4, 8] or 1 in the place of sizes in front or behind",
        ),
        (
            |g| {
                let x = g.input("x", DType::F32, &[4, 8]);
                let y = g.softmax_scaled(x, f32::NAN)?;
                g.output("y", y).build()
            },
            "argument 'softmax, scale': is NaN, expected a finite number",
        ),
        (
            |g| {
                let (x, t) = (g.input("x", DType::F32, &[4, 2, 8]), g.input("t", DType::F32, &[4, 8]));
                let y = g.rope(x, Turn::by(t, t))?;
                g.output("y", y).build()
            },
            "argument 'rope, cos': has 8 columns, expected at most 4; wide() means one an element",
        ),
        (
            |g| {
                let (x, t) = (g.input("x", DType::F32, &[2, 4, 2, 8]), g.input("t", DType::F32, &[8, 4]));
                let y = g.rope(x, Turn::by(t, t))?;
                g.output("y", y).build()
            },
            "argument 'rope, cos': has 8 rows, expected 4 as x has: positions say another order",
        ),
        (
            |g| {
                let (x, t) = (g.input("x", DType::F32, &[4, 2, 8]), g.input("t", DType::F32, &[4, 4]));
                let k = g.input("k", DType::F32, &[3, 2, 8]);
                let (y, _) = g.rope_pair(x, k, Turn::by(t, t))?;
                g.output("y", y).build()
            },
            "argument 'rope, k': is f32[3, 2, 8], expected the rows of q, [4, 2, 8]",
        ),
        (
            |g| {
                let (x, t) = (g.input("x", DType::F32, &[4, 2, 8]), g.input("t", DType::F32, &[4, 4]));
                let y = g.rope(x, Turn::by(t, t).leaving(2))?;
                g.output("y", y).build()
            },
            "argument 'rope': field 'plain' is '2': expected less than the 2 heads",
        ),
    ];
    for (make, expected) in cases {
        assert_eq!(said(make), expected);
    }
}

#[test]
fn arguments_that_do_not_fit_are_named_with_what_is_expected() {
    let session = session(Mode::Off);
    let mut g = session.graph();
    let (x, r) = (g.input("x", DType::F32, &[2, 4]), g.input("r", DType::F32, &[2, 4]));
    let y = g.add(x, r).unwrap();
    let fused = g.output("y", y).build().unwrap();
    let (x, r, half) = (vec![1f32; 8], vec![2f32; 8], vec![warplap_core::scalar::f16::ONE; 8]);
    let mut y = vec![0f32; 8];
    let (x, r) = (&x[..], &r[..]);
    let mut tried = |inputs: Vec<(&'static str, warplap_cpu::Slice<'_>)>, name: &'static str, len: usize| {
        fused.run(inputs, [(name, (&mut y[..len]).into())]).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(tried(vec![("x", x.into()), ("r", r.into())], "y", 8), "");
    for (inputs, name, len, expected) in [
        (
            vec![("x", x.into()), ("q", r.into())],
            "y",
            8,
            "argument 'q': is no input of this graph, expected one of x, r",
        ),
        (vec![("x", x.into()), ("r", r.into())], "z", 8, "argument 'z': is no output of this graph, expected one of y"),
        (vec![("x", x.into())], "y", 8, "argument 'r': is missing, expected 8 elements of f32: give it by its name"),
        (
            vec![("x", x.into()), ("x", r.into())],
            "y",
            8,
            "argument 'x': is given twice, expected each input once: leave one of them out",
        ),
        (vec![("x", x.into()), ("r", half[..].into())], "y", 8, "argument 'r': holds f16, expected f32"),
        (vec![("x", x.into()), ("r", r.into())], "y", 7, "argument 'y': holds 7 elements, expected at least 8"),
    ] {
        assert_eq!(tried(inputs, name, len), expected);
    }
    // Whoever was refused harms nobody after.
    assert_eq!(tried(vec![("x", x.into()), ("r", r.into())], "y", 8), "");
    assert_eq!(y, [3.0; 8]);
}
