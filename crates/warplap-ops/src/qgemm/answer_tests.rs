//! The right answer is that of plain loops, and planted faults are outside of what is allowed.

use warplap_core::op::Op;
use warplap_core::slot::Slot;

use super::*;
use crate::qgemm::Qgemm;

/// The product of plain loops, of some of the terms.
fn plain(p: &QgemmProblem, inputs: &[Array], counts: impl Fn(usize) -> bool) -> Vec<f64> {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let pitch = p.b_scale_pitch() as usize;
    let factor = |i: usize, j: usize, q: usize| {
        let [sa, sb] = [slot::SCALE_A, slot::SCALE_B].map(|s| move |at: usize| inputs[s].at(at));
        match p.scale {
            Scale::None => 1.0,
            Scale::Tensor => sa(0) * sb(0),
            Scale::Row => sa(i) * sb(j),
            Scale::Block => sa(q / 128 * m + i) * sb(j / 128 * pitch + q / 128),
        }
    };
    let term =
        |i: usize, j: usize, q: usize| inputs[slot::A].at(i * k + q) * inputs[slot::B].at(j * k + q) * factor(i, j, q);
    let sum = |at: usize| (0..k).filter(|q| counts(*q)).map(|q| term(at / n, at % n, q)).sum();
    (0..m * n).map(sum).collect()
}

fn drawn_for(p: &QgemmProblem, seed: u64) -> Vec<Array> {
    Qgemm::draw(p, &mut fastrand::Rng::with_seed(seed))
}

#[test]
fn the_answer_is_that_of_plain_loops() {
    for text in [
        "m=3,n=5,k=7,scale=none,out=f32",
        "m=4,n=6,k=130,scale=tensor",
        "m=4,n=6,k=64,scale=row,out=f16",
        "m=5,n=131,k=300,scale=block",
        "m=7,n=9,k=33,dtype=i8",
    ] {
        let p = Qgemm::parse(text).unwrap();
        let inputs = drawn_for(&p, 3);
        let answer = &Qgemm::answer(&p, &inputs)[0];
        let right = plain(&p, &inputs, |_| true);
        assert_eq!(answer.values.len(), right.len());
        let most = if p.is_int() { 0.0 } else { 1e-12 };
        assert!(answer.values.iter().zip(&right).all(|(a, b)| (a - b).abs() <= most), "{text}");
        let spans: Vec<usize> = Qgemm::signature(&p).slots().iter().map(Slot::len).collect();
        assert!(inputs.iter().zip(&spans).take(slot::C).all(|(input, len)| input.len() == *len), "{text}");
    }
}

/// Elements outside of what is allowed beside the right answer.
fn wrong(right: &Answer, got: &[f64]) -> usize {
    right.values.iter().zip(got).filter(|(r, g)| (*r - *g).abs() > right.tolerance.allowed(**r)).count()
}

#[test]
fn planted_faults_are_wrong_answers() {
    for text in [
        "m=24,n=20,k=1024,scale=tensor,out=bf16",
        "m=24,n=20,k=1024,scale=row,out=f16",
        "m=24,n=140,k=1024,scale=block,out=f32",
        "m=24,n=20,k=4096,scale=tensor,out=bf16,fast=true",
        "m=24,n=20,k=1024,dtype=i8",
    ] {
        let p = Qgemm::parse(text).unwrap();
        let inputs = drawn_for(&p, 4);
        let right = Qgemm::answer(&p, &inputs).remove(0);
        let all = right.values.len();
        assert_eq!(wrong(&right, &plain(&p, &inputs, |_| true)), 0, "{text}");
        // One step of the tensor cores, 32 of k, was left out.
        assert!(wrong(&right, &plain(&p, &inputs, |q| !(64..96).contains(&q))) > all / 4, "{text}: a missing step");
        // Rows in each other's place.
        let mut swapped = right.values.clone();
        swapped.rotate_left(p.n as usize);
        assert!(wrong(&right, &swapped) > all * 9 / 10, "{text}: rows in another place");
        for slot in [slot::SCALE_A, slot::SCALE_B].into_iter().filter(|_| p.scale != Scale::None) {
            let mut corrupted_inputs = inputs.clone();
            let Array::F32(factors) = &mut corrupted_inputs[slot] else { panic!("factors are f32") };
            match p.scale {
                Scale::Tensor => factors[0] *= 1.1,
                _ => factors.rotate_left(1),
            }
            assert!(
                wrong(&right, &plain(&p, &corrupted_inputs, |_| true)) > all / 3,
                "{text}: a factor of slot {slot} is another's"
            );
        }
    }
}

/// Tensor cores cut what they add to the place of the largest number, at about 13 bits behind it.
fn narrow(p: &QgemmProblem, inputs: &[Array]) -> Vec<f64> {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let run = if p.fast { k } else { 128 };
    let [a, b] = [slot::A, slot::B].map(|s| inputs[s].to_f64());
    let sum = |at: usize| {
        let (i, j) = (at / n, at % n);
        let mut total = 0f64;
        for first in (0..k).step_by(run) {
            let mut part = 0f64;
            for step in (first..(first + run).min(k)).step_by(32) {
                let mut terms: Vec<f64> = (step..(step + 32).min(k)).map(|q| a[i * k + q] * b[j * k + q]).collect();
                terms.push(part);
                let largest = terms.iter().fold(f64::MIN_POSITIVE, |most, t| t.abs().max(most));
                let unit = 2f64.powi(largest.log2().floor() as i32 - 13);
                part = terms.iter().map(|t| (t / unit).trunc() * unit).sum();
                let unit = 2f64.powi(part.abs().max(f64::MIN_POSITIVE).log2().floor() as i32 - 13);
                part = (part / unit).trunc() * unit;
            }
            total += part;
        }
        total * inputs[slot::SCALE_A].at(0) * inputs[slot::SCALE_B].at(0)
    };
    (0..m * n).map(|at| p.out.rounded(sum(at))).collect()
}

#[test]
fn the_narrow_sums_of_tensor_cores_are_right_answers() {
    for rest in ["k=128", "k=64", "k=4096", "k=4096,fast=true", "k=16384,fast=true", "k=96,fast=true"] {
        for out in ["f32", "bf16", "f16"] {
            let p = Qgemm::parse(&format!("m=24,n=20,out={out},scale=tensor,{rest}")).unwrap();
            let inputs = drawn_for(&p, 5);
            let right = Qgemm::answer(&p, &inputs).remove(0);
            let got = narrow(&p, &inputs);
            assert_eq!(wrong(&right, &got), 0, "{rest} {out}");
            let share = |(r, g): (&f64, &f64)| (r - g).abs() / right.tolerance.allowed(*r);
            let most = right.values.iter().zip(&got).map(share).fold(0.0, f64::max);
            assert!(most > 0.02, "{rest} {out}: the bound is {most} used, and far too wide");
        }
    }
}
