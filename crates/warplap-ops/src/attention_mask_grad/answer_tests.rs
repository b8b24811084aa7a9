use super::*;
use crate::attention::slot as forward;
use crate::attention::{Attention, Corner};

/// The gradient by plain loops over the formulas.
fn by_hand(p: &AttentionProblem, inputs: &[Array]) -> Vec<f64> {
    let row = |slot: usize, s: crate::attention::Strides, [b, h, i]: [u64; 3], n: u64| -> Vec<f64> {
        let first = b as usize * s.batch + h as usize * s.head + i as usize * s.row;
        (first..first + n as usize).map(|at| inputs[slot].at(at)).collect()
    };
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(x, y)| x * y).sum() };
    let mut gradient = vec![0f64; p.mask_len()];
    for (b, h, i) in (0..p.b).flat_map(|b| (0..p.h).flat_map(move |h| (0..p.sq).map(move |i| (b, h, i)))) {
        let (q, g) = (row(slot::Q, p.q_strides(), [b, h, i], p.d), row(slot::GRAD, p.o_strides(), [b, h, i], p.dv));
        let delta = dot(&g, &row(slot::OUT, p.o_strides(), [b, h, i], p.dv));
        let lse = inputs[slot::LSE].at(((b * p.h + h) * p.sq + i) as usize);
        let own = i as i64 + if p.corner == Corner::Bottom { p.sk as i64 - p.sq as i64 } else { 0 };
        for j in 0..p.sk {
            let away = j as i64 - own;
            if lse == f64::NEG_INFINITY || p.causal && away > 0 || p.window.is_some_and(|w| away.unsigned_abs() > w) {
                continue;
            }
            let met = [b, h / p.group(), j];
            let (k, v) = (row(slot::K, p.k_strides(), met, p.d), row(slot::V, p.v_strides(), met, p.dv));
            let strides = p.mask_strides();
            let at = b as usize * strides.batch + h as usize * strides.head + i as usize * strides.row + j as usize;
            let scaled = dot(&q, &k) * f64::from(p.scale());
            let capped_score = p.softcap().map_or(scaled, |c| f64::from(c) * (scaled / f64::from(c)).tanh());
            let lean = if p.alibi { inputs[slot::SLOPES].at(h as usize) * away.abs() as f64 } else { 0.0 };
            let weight = (capped_score - lean + inputs[slot::MASK].at(at) - lse).exp();
            let drops = drops(p, &inputs[slot::SEED], (b * p.h + h) as usize);
            let kept = drops.map_or(1.0, |drops| f64::from(drops.factor(i as usize, j as usize)));
            gradient[at] += weight * (dot(&g, &v) * kept - delta);
        }
    }
    gradient
}

const PROBLEMS: [&str; 8] = [
    "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,dtype=f32",
    "b=2,h=2,sq=300,sk=7,d=2,dtype=f32,causal=true,layout=bshd,over=heads",
    "h=2,sq=5,sk=9,d=3,dtype=f16,causal=true,scale=-0.4",
    "h=1,sq=4,sk=1,d=1,dtype=bf16,layout=bshd,over=each",
    "b=2,h=2,sq=6,sk=9,d=3,over=heads,window=2,corner=bottom",
    "b=2,h=2,sq=9,sk=6,d=3,over=each,causal=true,corner=bottom,alibi=true",
    "b=2,h=4,hkv=2,sq=9,sk=6,d=3,over=batches,softcap=0.5,alibi=true,window=3,causal=true",
    "b=2,h=2,sq=20,sk=35,d=3,over=batches,dropout=0.3",
];

fn problem(text: &str) -> AttentionMaskGradProblem {
    AttentionMaskGrad::parse(&format!("{text},mask=add")).unwrap()
}

#[test]
fn the_right_answer_is_the_plain_loops() {
    for text in PROBLEMS {
        let p = problem(text);
        let inputs = AttentionMaskGrad::draw(&p, &mut fastrand::Rng::with_seed(5));
        let answer = AttentionMaskGrad::answer(&p, &inputs).remove(0);
        assert_eq!(answer.values.len(), p.0.mask_len());
        for (actual, right) in answer.values.iter().zip(by_hand(&p.0, &inputs)) {
            assert!((actual - right).abs() <= 1e-11 * (1.0 + right.abs()), "{text}: {actual} is not {right}");
        }
    }
}

/// With O and log-sum-exps of a forward pass, what is computed is how much the sum of dO ∘ O changes.
#[test]
fn it_is_the_gradient_of_attention() {
    for text in [
        "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,dtype=f32",
        "b=2,h=2,sq=6,d=3,dtype=f32,causal=true,over=heads",
        "b=2,h=2,sq=6,d=3,window=2,softcap=0.7,over=batches,alibi=true",
        "b=2,h=2,sq=19,d=3,over=each,dropout=0.4",
    ] {
        let p = problem(text);
        let mut inputs = AttentionMaskGrad::draw(&p, &mut fastrand::Rng::with_seed(6));
        let forward = |inputs: &[Array]| {
            let mut forward_inputs = vec![Array::none(); forward::OFFSETS_K + 1];
            forward_inputs[..slot::OUT].clone_from_slice(&inputs[..slot::OUT]);
            forward_inputs[forward::SLOPES] = inputs[slot::SLOPES].clone();
            forward_inputs[forward::SEED] = inputs[slot::SEED].clone();
            Attention::answer(&p.0, &forward_inputs).remove(0).values
        };
        inputs[slot::OUT] = Array::F32(forward(&inputs).into_iter().map(|x| x as f32).collect());
        let answer = AttentionMaskGrad::answer(&p, &inputs).remove(0);
        let grad = inputs[slot::GRAD].to_f64();
        for i in 0..answer.values.len() {
            let moved = |by: f32| {
                let mut inputs = inputs.clone();
                let Array::F32(all) = &mut inputs[slot::MASK] else { panic!() };
                all[i] += by;
                // What was added, not what should have been: the numbers are f32.
                let step = f64::from(all[i]);
                (step, forward(&inputs).iter().zip(&grad).map(|(o, g)| o * g).sum::<f64>())
            };
            let ((above, high), (below, low)) = (moved(1e-3), moved(-1e-3));
            // What is hidden stays hidden.
            let slope = if above == f64::NEG_INFINITY { 0.0 } else { (high - low) / (above - below) };
            let actual = answer.values[i];
            assert!((actual - slope).abs() < 1e-4 * (1.0 + slope.abs()), "{text} entry {i}: {actual}, {slope}");
        }
    }
}

#[test]
fn what_has_no_gradient_is_refused_by_name() {
    for (rest, field, reason) in [
        ("", "'mask'", "add"),
        (",mask=bool", "'mask'", "add"),
        (",mask=add,tq=40", "'tq'", "packed"),
        (",mask=add,lengths=true", "'lengths'", "backward"),
        (",mask=add,page=16", "'page'", "backward"),
    ] {
        let error = AttentionMaskGrad::parse(&format!("b=2,h=2,sq=32,d=8{rest}")).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains(reason), "{rest}: {error}");
    }
}

#[test]
fn one_head_that_is_left_out_shows() {
    let p = problem("b=4,h=8,sq=64,sk=256,d=64,dtype=f32");
    let inputs = AttentionMaskGrad::draw(&p, &mut fastrand::Rng::with_seed(1));
    let answer = AttentionMaskGrad::answer(&p, &inputs).remove(0);
    let mut without = inputs.clone();
    let Array::F32(lse) = &mut without[slot::LSE] else { panic!() };
    lse[17 * 64..18 * 64].fill(f32::NEG_INFINITY);
    let other = AttentionMaskGrad::answer(&p, &without).remove(0);
    let differs = |(a, b): &(&f64, &f64)| (*a - *b).abs() > answer.tolerance.allowed(**a);
    let caught = answer.values.iter().zip(&other.values).filter(differs).count();
    assert!(caught > answer.values.len() / 2, "{caught} of {}", answer.values.len());
}
