//! The right answer is that of plain loops, and its tolerances tell wrong from right.

use warplap_core::op::Op;

use super::*;
use crate::norm::Norm;
use warplap_core::scalar::{F8E4m3, Scalar};

/// y of plain loops in double precision over x and the residual as `kept` has it, and x + residual.
fn plain(p: &NormProblem, inputs: &[Array], eps: f64, kept: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
    let n = p.n as usize;
    let at = |slot: usize, i: usize, none: f64| if inputs[slot].is_empty() { none } else { inputs[slot].at(i) };
    let mut factors = vec![1f32; p.len()];
    if !inputs[slot::SEED].is_empty() {
        let seed = [0, 1].map(|i| inputs[slot::SEED].at(i) as u64);
        Dropout::new(p.dropout()).factors(0, seed, &mut factors);
    }
    let front = |i: usize| (at(slot::X, i, 0.0) + at(slot::BEFORE, i % n, 0.0)) * f64::from(factors[i]);
    let sum: Vec<f64> = (0..p.len()).map(|i| front(i) + at(slot::RESIDUAL, i, 0.0)).collect();
    let mut y = Vec::new();
    for row in sum.chunks(n) {
        let row: Vec<f64> = row.iter().map(|s| kept(*s)).collect();
        let mean = if p.kind == Kind::Layer { row.iter().sum::<f64>() / n as f64 } else { 0.0 };
        let var = row.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / n as f64;
        let norm = |i: usize| (row[i] - mean) / (var + eps).sqrt();
        y.extend((0..n).map(|i| norm(i) * at(slot::WEIGHT, i, 1.0) + at(slot::BIAS, i, 0.0)));
    }
    (y, sum)
}

fn shares(answer: &Answer, got: impl IntoIterator<Item = f64>) -> f64 {
    let share = |(got, right): (f64, &f64)| (got - right).abs() / answer.tolerance.allowed(*right);
    got.into_iter().zip(&answer.values).map(share).fold(0.0, f64::max)
}

fn cases() -> impl Iterator<Item = (String, NormProblem, Vec<Array>)> {
    let kinds = ["rms", "layer"].into_iter().flat_map(|kind| ["f32", "f16", "bf16"].map(|dtype| (kind, dtype)));
    let all = kinds.flat_map(|(kind, dtype)| {
        [
            "",
            ",residual=true",
            ",residual=true,bias=true",
            ",weight=false,eps=1e-3",
            ",residual=true,before=true,dropout=0.2",
        ]
        .map(|rest| format!("rows=8,n=200,kind={kind},dtype={dtype}{rest}"))
    });
    all.map(|text| {
        let p = Norm::parse(&text).unwrap();
        let inputs = Norm::draw(&p, &mut fastrand::Rng::with_seed(4));
        (text, p, inputs)
    })
}

#[test]
fn the_right_answer_is_that_of_plain_loops_and_so_is_the_norm_of_the_rounded_sum() {
    for (text, p, inputs) in cases() {
        let answers = Norm::answer(&p, &inputs);
        assert_eq!(answers.len(), if p.has_sum() { 2 } else { 1 }, "{text}");
        let (y, sum) = plain(&p, &inputs, f64::from(p.eps()), |s| s);
        assert!(y.iter().zip(&answers[0].values).all(|(a, b)| (a - b).abs() < 1e-12), "{text}");
        let stored = |of: &[f64]| Array::from_f64(p.dtype, of.iter().copied()).to_f64();
        assert!(shares(&answers[0], stored(&y)) <= 1.0, "{text}: y rounded");
        let (late, _) = plain(&p, &inputs, f64::from(p.eps()), |s| Array::from_f64(p.dtype, [s]).at(0));
        let share = shares(&answers[0], stored(&late));
        assert!(share <= 1.0, "{text}: y of the rounded sum has {share} of the allowed error");
        if p.has_sum() {
            assert_eq!(answers[1].values, sum, "{text}");
            assert!(shares(&answers[1], stored(&sum)) <= 1.0, "{text}: the sum rounded");
            // One unit further in the last place of a single element shows, where one rounding is all there is.
            let mut off = stored(&sum);
            off[77] *= 1.0 + 4.0 * p.dtype.roundoff();
            assert!(has_steps(&p) || shares(&answers[1], off) > 1.0, "{text}");
        }
    }
}

#[test]
fn what_is_left_out_shows_in_every_type() {
    for (text, p, inputs) in cases() {
        let answer = &Norm::answer(&p, &inputs)[0];
        let (no_eps, _) = plain(&p, &inputs, 0.0, |s| s);
        assert!(shares(answer, no_eps) > 1.0, "{text}: nothing added under the root");
        let mut other = p;
        other.kind = if p.kind == Kind::Layer { Kind::Rms } else { Kind::Layer };
        let (other, _) = plain(&other, &inputs, f64::from(p.eps()), |s| s);
        assert!(shares(answer, other) > 1.0, "{text}: the other kind");
        for left_out in [slot::RESIDUAL, slot::WEIGHT, slot::BIAS, slot::BEFORE, slot::SEED]
            .into_iter()
            .filter(|s| !inputs[*s].is_empty())
        {
            let mut less = inputs.clone();
            less[left_out] = Array::none();
            let (y, _) = plain(&p, &less, f64::from(p.eps()), |s| s);
            assert!(shares(answer, y) > 1.0, "{text}: slot {left_out} left out");
        }
    }
}

/// Codes and factors as a kernel that computes exactly would write them, and with another way to round.
fn coded(p: &NormProblem, inputs: &[Array], round: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
    let (y, _) = plain(p, inputs, f64::from(p.eps()), |s| s);
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for row in y.chunks(p.n as usize) {
        let most = row.iter().fold(0f64, |most, y| most.max(y.abs()));
        scales.push(f64::from((most / f64::from(p.quant.top())) as f32));
        codes.extend(row.iter().map(|y| round(y / most * f64::from(p.quant.top()))));
    }
    (codes, scales)
}

fn quantised() -> impl Iterator<Item = (String, NormProblem, Vec<Array>)> {
    let both = cases().flat_map(|(text, ..)| ["f8e4m3", "i8"].map(|quant| format!("{text},quant={quant}")));
    both.map(|text| {
        let p = Norm::parse(&text).unwrap();
        let inputs = Norm::draw(&p, &mut fastrand::Rng::with_seed(4));
        (text, p, inputs)
    })
}

/// The nearest code.
fn nearest(p: &NormProblem) -> impl Fn(f64) -> f64 + use<> {
    let quant = p.quant;
    move |v| if quant == Quant::I8 { v.round_ties_even() } else { DType::F8E4m3.rounded(v) }
}

#[test]
fn codes_of_plain_loops_are_right_and_so_is_either_side_of_a_middle() {
    for (text, p, inputs) in quantised() {
        let answers = Norm::answer(&p, &inputs);
        let (codes, scales) = coded(&p, &inputs, nearest(&p));
        let share = shares(&answers[0], codes.iter().copied());
        assert!((0.9..=1.0).contains(&share), "{text}: {share} of half a step");
        let last = answers.last().unwrap();
        assert!(answers.len() == 2 + usize::from(p.has_sum()) && last.values.len() == p.rows as usize, "{text}");
        assert!(shares(last, scales.iter().copied()) <= 1.0, "{text}");
        // The numbers that codes and factors stand for are y.
        let (y, _) = plain(&p, &inputs, f64::from(p.eps()), |s| s);
        for (i, (code, y)) in codes.iter().zip(&y).enumerate() {
            let scale = scales[i / p.n as usize];
            assert!((code * scale - y).abs() <= answers[0].tolerance.allowed(y / scale) * scale, "{text}");
        }
        // A number in the middle of two codes may be either.
        let (low, high, middle) = if p.quant == Quant::I8 { (56.0, 57.0, 56.5) } else { (208.0, 224.0, 216.0) };
        assert!([low, high].iter().all(|c: &f64| (c - middle).abs() <= answers[0].tolerance.allowed(middle)), "{text}");
    }
}

#[test]
fn codes_that_are_cut_or_of_another_row_s_factor_show() {
    for (text, p, inputs) in quantised() {
        let answers = Norm::answer(&p, &inputs);
        let nearest = nearest(&p);
        // Towards zero: what is rounded up is a step less.
        let cut = |v: f64| {
            let to = nearest(v);
            match to.abs() > v.abs() {
                true if p.quant == Quant::I8 => v.trunc(),
                true => F8E4m3(F8E4m3::from_f64(v).0 - 1).to_f64(),
                false => to,
            }
        };
        assert!(shares(&answers[0], coded(&p, &inputs, cut).0) > 1.2, "{text}: cut towards zero");
        let (codes, scales) = coded(&p, &inputs, &nearest);
        let swapped = codes.iter().skip(p.n as usize).chain(&codes[..p.n as usize]).copied();
        assert!(shares(&answers[0], swapped) > 2.0, "{text}: rows in another place");
        let last = answers.last().unwrap();
        assert!(shares(last, scales.iter().map(|s| s * (1.0 + 1e-3))) > 1.0, "{text}: a factor a thousandth too large");
        // A factor over 256 or 128 instead of the largest code.
        let wrong = if p.quant == Quant::I8 { 127.0 / 128.0 } else { 256.0 / 448.0 };
        let off = coded(&p, &inputs, |v| nearest(v * wrong)).0;
        assert!(shares(&answers[0], off) > 1.5, "{text}: another largest code");
        // The sum as it was rounded to a half type is not what codes are of.
        if p.residual && p.dtype == DType::Bf16 && p.quant == Quant::I8 {
            let (late, _) = plain(&p, &inputs, f64::from(p.eps()), |s| Array::from_f64(p.dtype, [s]).at(0));
            let most = |row: &[f64]| row.iter().fold(0f64, |most, y| most.max(y.abs()));
            let codes = late.chunks(p.n as usize).flat_map(|row| {
                let unit = 127.0 / most(row);
                row.iter().map(move |y| (y * unit).round_ties_even())
            });
            assert!(shares(&answers[0], codes) > 1.0, "{text}: codes of the rounded sum");
        }
    }
}
