//! What is told of a decision: the graph drawn with its boundaries, and what everyone took.

use super::{DType, Mode};
use super::{layer, session};
use crate::explain::Story;

#[test]
fn a_graph_is_drawn_with_a_bracket_around_each_launch() {
    let session = session(Mode::Off);
    let fused = layer(&mut session.graph(), 5, DType::F32);
    let plan = &fused.problem().plan;
    let story = |winner: &str| {
        let partition =
            plan.partitions.iter().find(|p| p.id.split('+').all(|k| winner.contains(k)) && p.covers.len() == 3);
        let winner = partition.map_or(winner.to_string(), |p| p.id.clone());
        Story { plan, key: "graph:".into(), how: "raced".into(), winner, edition: None, guess: None }.to_string()
    };
    let drawn = story("add_norm gated_linear_silu linear_add");
    assert_eq!(
        drawn,
        "graph:
  raced

  add       add(x, r)               ┌
  rms_norm  rms_norm(add, gain)     └ norm: add_norm
  linear    linear(rms_norm, gate)  ┌
  silu      silu(linear)            │
  linear_1  linear(rms_norm, up)    │
  mul       mul(silu, linear_1)     └ gemm: gated_linear_silu
  linear_2  linear(mul, down)       ┌
  y         add(linear_2, add)      └ gemm: linear_add"
    );
}

#[test]
fn explain_says_why_nothing_was_measured_and_draws_a_launch_a_node() {
    let session = session(Mode::Off);
    let mut g = session.graph();
    let (x, w) = (g.input("x", DType::F32, &[3, 8]), g.input("w", DType::F32, &[5, 8]));
    let y = g.linear(x, w).unwrap();
    let y = g.gelu(y).unwrap();
    let fused = g.output("y", y).build().unwrap();
    let text = fused.explain();
    let (key, rest) = text.split_once('\n').unwrap();
    assert!(key.starts_with("graph:structure=") && key.ends_with(",nodes=2,rows=3,dtype=f32"), "{key}");
    assert_eq!(rest, "  the mode is off\n\n  linear  linear(x, w)    gemm\n  y       gelu(linear)    gated");
}

#[test]
fn explain_lists_who_raced_with_the_winner_first() {
    let session = session(Mode::Tune);
    let mut g = session.graph();
    let (x, w) = (g.input("x", DType::F32, &[3, 64]), g.input("w", DType::F32, &[48, 64]));
    let y = g.linear(x, w).unwrap();
    let y = g.gelu(y).unwrap();
    let fused = g.output("y", y).build().unwrap();
    let tuned = fused.tune(&warplap_core::progress::Silent).unwrap();
    let text = fused.explain();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!((lines[0], lines[1]), ("  raced", ""), "{text}");
    let at = lines.iter().position(|line| *line == "  raced as a whole").unwrap_or_else(|| panic!("{text}"));
    let winner = &tuned.edition.verdict.winner.variant;
    assert!(lines[at + 1].trim_start().starts_with(winner.as_str()) && lines[at + 1].contains("1.00×"), "{text}");
    for line in &lines[at + 1..at + 3] {
        // A time in microseconds, and how far behind.
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(["apart", "linear_gelu"].contains(&words[0]) && words[2] == "µs" && words[3].ends_with('×'), "{text}");
        assert!(words[1].parse::<f64>().unwrap() > 0.0);
    }
    let drawn = if winner == "apart" { "gated" } else { "└ gemm: linear_gelu" };
    assert!(lines[3].ends_with(drawn), "{text}");
}

#[test]
fn a_report_draws_the_graph_and_names_who_raced() {
    let session = session(Mode::Tune);
    let mut g = session.graph();
    let (x, r) = (g.input("x", DType::F32, &[3, 64]), g.input("r", DType::F32, &[3, 64]));
    let w = g.input("weights", DType::F32, &[48, 64]);
    let sum = g.add(x, r).unwrap();
    let y = g.linear(sum, w).unwrap();
    let y = g.gelu(y).unwrap();
    let fused = g.output("y", y).build().unwrap();
    assert!(fused.report().contains("not decided yet"));
    fused.tune(&warplap_core::progress::Silent).unwrap();
    let page = fused.report();
    for text in ["<svg", "raced", "linear_gelu", "apart", ">x<", ">r<"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains(">weights<"), "weights are in the way");
}
