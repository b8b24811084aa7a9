//! Nodes of heads, and of scaled and masked rows: what they give, by hand; and by every partition.

use warplap_core::array::Array;

use super::fusion_patterns::outputs_of;
use super::{Cpu, DType, Mode};
use super::{run, session, share};
use crate::{Fused, Turn};

/// Whether every partition gives what the nodes do.
fn all_are_right(fused: &Fused<Cpu>, what: &str) {
    let session = session(Mode::Off);
    for partition in &fused.problem().plan.partitions {
        let (drawn, left) = outputs_of(&session, fused, partition);
        let share = share(fused, &drawn, &left);
        assert!(share <= 1.0, "{what} by {}: {share} of the allowed error", partition.id);
    }
}

fn ids(fused: &Fused<Cpu>) -> Vec<&str> {
    fused.problem().plan.partitions.iter().map(|partition| partition.id.as_str()).collect()
}

/// Element j of a head that is turned by halves, at a row of the table.
fn by_halves(x: &[f64], j: usize, line: usize, [cos, sin]: [&[f64]; 2]) -> f64 {
    let half = x.len() / 2;
    let (c, s) = (cos[line * half + j % half], sin[line * half + j % half]);
    if j < half { x[j] * c - x[j + half] * s } else { x[j] * c + x[j - half] * s }
}

#[test]
fn queries_and_keys_are_turned_by_their_positions_in_one_launch() {
    let session = session(Mode::Off);
    let (rows, h, hk, d, n) = (6, 3, 1, 8, 11);
    let mut g = session.graph();
    let q = g.input("q", DType::F32, &[2, rows / 2, h, d]);
    let k = g.input("k", DType::F32, &[2, rows / 2, hk, d]);
    let [cos, sin] = ["cos", "sin"].map(|name| g.input(name, DType::F32, &[n, d / 2]));
    let positions = g.input("positions", DType::I64, &[2, rows / 2]);
    let (y, yk) = g.rope_pair(q, k, Turn::by(cos, sin).at(positions)).unwrap();
    let yk = g.relu(yk).unwrap();
    let fused = g.output("y", y).output("yk", yk).build().unwrap();
    let (drawn, left) = run(&fused, 6);
    assert!(share(&fused, &drawn, &left) <= 1.0);
    let [q, k, cos, sin, positions] = [0, 1, 2, 3, 4].map(|i: usize| drawn[i].to_f64());
    assert!(positions.iter().any(|p| *p > 1.0) && positions.iter().all(|p| (0.0..n as f64).contains(p)));
    for (x, heads, got, act) in [(&q, h, &left[0], false), (&k, hk, &left[1], true)] {
        for (i, head) in x.chunks(d as usize).enumerate() {
            let line = positions[i / heads as usize] as usize;
            for j in 0..d as usize {
                let right = by_halves(head, j, line, [&cos, &sin]);
                let right = if act { right.max(0.0) } else { right };
                assert!((got.at(i * d as usize + j) - right).abs() < 1e-5, "head {i}, element {j}");
            }
        }
    }
    let text = fused.explain();
    assert!(text.contains("y, rope.1  rope(q, k, cos, sin, positions)    rope"), "{text}");
    assert!(text.contains("relu(rope.1)"), "{text}");
}

#[test]
fn rows_without_positions_count_within_their_batch() {
    let session = session(Mode::Off);
    let (each, d) = (4, 6);
    let mut g = session.graph();
    let x = g.input("x", DType::F32, &[3, each, 2, d]);
    let [cos, sin] = ["cos", "sin"].map(|name| g.input(name, DType::F32, &[each, d / 2]));
    let y = g.rope(x, Turn::by(cos, sin)).unwrap();
    let fused = g.output("y", y).build().unwrap();
    let (drawn, left) = run(&fused, 6);
    let [x, cos, sin] = [0, 1, 2].map(|i: usize| drawn[i].to_f64());
    for (i, head) in x.chunks(d as usize).enumerate() {
        for j in 0..d as usize {
            let right = by_halves(head, j, i / 2 % each as usize, [&cos, &sin]);
            assert!((left[0].at(i * d as usize + j) - right).abs() < 1e-5, "head {i}, element {j}");
        }
    }
}

#[test]
fn a_fused_projection_is_turned_and_its_bias_may_be_the_turn_s() {
    let session = session(Mode::Off);
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for turn in [|t: Turn| t, Turn::interleaved, |t: Turn| t.leaving(1)] {
            let (rows, wide, heads, d) = (5, 40, 3, 8);
            let mut g = session.graph();
            let x = g.input("x", dtype, &[rows, wide]);
            let (w, bias) = (g.input("w", dtype, &[heads * d, wide]), g.input("bias", dtype, &[heads * d]));
            let [cos, sin] = ["cos", "sin"].map(|name| g.input(name, DType::F32, &[rows, d / 2]));
            let qkv = g.linear_bias(x, w, bias).unwrap();
            let qkv = g.reshape(qkv, &[rows, heads, d]).unwrap();
            let y = g.rope(qkv, turn(Turn::by(cos, sin))).unwrap();
            let fused = g.output("y", y).build().unwrap();
            assert_eq!(ids(&fused), ["apart", "linear_bias_rope"]);
            all_are_right(&fused, &dtype.to_string());
        }
    }
}

#[test]
fn a_bias_that_others_read_or_that_lies_otherwise_stays_where_it_is() {
    let session = session(Mode::Off);
    for (rows, heads, seen) in [(4, 4, true), (8, 2, false)] {
        let mut g = session.graph();
        let x = g.input("x", DType::F32, &[4, 40]);
        let (w, bias) = (g.input("w", DType::F32, &[32, 40]), g.input("bias", DType::F32, &[32]));
        let [cos, sin] = ["cos", "sin"].map(|name| g.input(name, DType::F32, &[rows, 4]));
        let p = g.linear_bias(x, w, bias).unwrap();
        let heads = g.reshape(p, &[rows, heads, 8]).unwrap();
        let y = g.rope(heads, Turn::by(cos, sin)).unwrap();
        if seen {
            g.output("p", p);
        }
        let fused = g.output("y", y).build().unwrap();
        assert_eq!(ids(&fused), ["apart"], "{rows}");
        all_are_right(&fused, "apart");
    }
}

#[test]
fn turns_of_every_form_are_right_in_front_of_attention() {
    let session = session(Mode::Off);
    for dtype in [DType::F32, DType::Bf16] {
        for wide in [false, true] {
            let (rows, h, hkv, d) = (9, 4, 2, 16);
            let mut g = session.graph();
            let q = g.input("q", dtype, &[1, rows, h, d]);
            let [k, v] = ["k", "v"].map(|name| g.input(name, dtype, &[1, rows, hkv, d]));
            let columns = if wide { d - 4 } else { d / 2 - 2 };
            let [cos, sin] = ["cos", "sin"].map(|name| g.input(name, dtype, &[rows + 3, columns]));
            let turn = Turn::by(cos, sin);
            let bias = g.input("bias", dtype, &[(h + hkv) * d]);
            let turn = if wide { turn.wide() } else { turn };
            let (q, k) = g.rope_pair(q, k, turn.biased(bias)).unwrap();
            let o = g.attention_by_rows(q, k, v, true).unwrap();
            let fused = g.output("o", o).build().unwrap();
            all_are_right(&fused, &format!("{dtype} {wide}"));
        }
    }
}

#[test]
fn what_nobody_reads_of_two_is_written_all_the_same() {
    let session = session(Mode::Off);
    let mut g = session.graph();
    let (q, k) = (g.input("q", DType::F32, &[3, 2, 8]), g.input("k", DType::F32, &[3, 1, 8]));
    let [cos, sin] = ["cos", "sin"].map(|name| g.input(name, DType::F32, &[3, 4]));
    let (_, k) = g.rope_pair(q, k, Turn::by(cos, sin)).unwrap();
    let fused = g.output("yk", k).build().unwrap();
    all_are_right(&fused, "k alone");
    assert_eq!(fused.problem().plan.alone[0].writes().len(), 2);
}

#[test]
fn a_softmax_scales_first_and_masks_then() {
    let session = session(Mode::Off);
    let shape = [2u64, 3, 4, 10];
    for (mask, scale) in [(&[2, 3, 4, 10][..], 0.5f32), (&[4, 10], 3.0), (&[2, 1, 1, 10], 0.125), (&[10], -2.0)] {
        let mut g = session.graph();
        let (x, m) = (g.input("x", DType::F32, &shape), g.input("m", DType::F32, mask));
        let y = g.softmax_masked(x, m, scale).unwrap();
        let fused = g.output("y", y).build().unwrap();
        assert_eq!(ids(&fused), ["apart"]);
        let (drawn, left) = run(&fused, 9);
        let (x, m) = (drawn[0].to_f64(), drawn[1].to_f64());
        for (row, x) in x.chunks(10).enumerate() {
            let line = match mask.len() {
                4 if mask[1] == 1 => row / 12,
                4 => row,
                2 => row % 4,
                _ => 0,
            };
            let each: Vec<f64> = x.iter().zip(&m[line * 10..]).map(|(x, m)| (f64::from(scale) * x + m).exp()).collect();
            let sum: f64 = each.iter().sum();
            for (j, right) in each.iter().enumerate() {
                assert!((left[0].at(row * 10 + j) - right / sum).abs() < 1e-5, "{mask:?} row {row}");
            }
        }
    }
}

#[test]
fn a_sum_is_the_mask_only_of_a_softmax_that_scales_nothing() {
    let session = session(Mode::Off);
    for (scale, expected) in [(1.0, vec!["apart", "softmax_mask"]), (0.25, vec!["apart"])] {
        let mut g = session.graph();
        let (x, m) = (g.input("x", DType::F32, &[5, 40]), g.input("m", DType::F32, &[5, 40]));
        let sum = g.add(x, m).unwrap();
        let y = g.softmax_scaled(sum, scale).unwrap();
        let fused = g.output("y", y).build().unwrap();
        assert_eq!(ids(&fused), expected, "{scale}");
        all_are_right(&fused, "a sum");
    }
    // A factor that is left out is seen.
    let mut g = session.graph();
    let x = g.input("x", DType::Bf16, &[5, 40]);
    let y = g.softmax_scaled(x, 0.125).unwrap();
    let fused = g.output("y", y).build().unwrap();
    let (drawn, left) = run(&fused, 9);
    assert!(share(&fused, &drawn, &left) <= 1.0);
    let mut plain = session.graph();
    let x = plain.input("x", DType::Bf16, &[5, 40]);
    let y = plain.softmax(x).unwrap();
    let other = plain.output("y", y).build().unwrap();
    let left = [Array::Bf16(match &left[0] {
        Array::Bf16(v) => v.clone(),
        _ => Vec::new(),
    })];
    assert!(share(&other, &drawn, &left) > 1.0);
}
