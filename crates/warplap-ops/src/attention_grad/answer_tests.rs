use super::*;
use crate::attention::{Corner, Mask};

/// Every gradient by plain loops over the formulas.
fn by_hand(p: &AttentionProblem, inputs: &[Array]) -> [Vec<f64>; 3] {
    let mut gradients = [p.q_len(), p.k_len(), p.v_len()].map(|len| vec![0f64; len]);
    let at = |s: Strides, b: u64, h: u64, i: u64| b as usize * s.batch + h as usize * s.head + i as usize * s.row;
    let dot = |a: usize, x: usize, c: usize, y: usize, n: u64| -> f64 {
        (0..n as usize).map(|e| inputs[a].at(x + e) * inputs[c].at(y + e)).sum()
    };
    let packed = p.packed.is_some();
    let starts = |slot: usize, b: u64| [0, 1].map(|end| inputs[slot].at((b + end) as usize) as u64);
    let rows = |slot: usize, b: u64, all: u64| if packed { starts(slot, b) } else { [0, all] };
    for (b, h, i) in (0..p.b).flat_map(|b| (0..p.h).flat_map(move |h| (0..p.sq).map(move |i| (b, h, i)))) {
        // The sequence's first row, and how many it has.
        let ([q0, q1], [k0, k1]) = (rows(slot::OFFSETS_Q, b, p.sq), rows(slot::OFFSETS_K, b, p.sk));
        let (sq, sk) = (q1 - q0, k1 - k0);
        if i >= sq {
            continue;
        }
        let (q, o) = (at(p.q_strides(), b, h, q0 + i), at(p.o_strides(), b, h, q0 + i));
        let delta = dot(slot::OUT, o, slot::GRAD, o, p.dv);
        let known = if packed { h * p.stretches()[1] + q0 + i } else { (b * p.h + h) * p.sq + i };
        let lse = inputs[slot::LSE].at(known as usize);
        let own = i as i64 + if p.corner == Corner::Bottom { sk as i64 - sq as i64 } else { 0 };
        let sees = |j: &u64| {
            let away = *j as i64 - own;
            !(p.causal && away > 0) && p.window.is_none_or(|w| away.unsigned_abs() <= w)
        };
        for j in (0..sk).filter(sees).filter(|_| lse != f64::NEG_INFINITY) {
            let (k, v) = (at(p.k_strides(), b, h / p.group(), k0 + j), at(p.v_strides(), b, h / p.group(), k0 + j));
            let side = p.mask.tiles().map_or(1, |tiles| tiles.side);
            let entry = || inputs[slot::MASK].at(at(p.mask_strides(), b, h, i / side) + (j / side) as usize);
            let added = match p.mask {
                Mask::None => 0.0,
                Mask::Add => entry(),
                Mask::Bool | Mask::Tiles(_) if entry() == 0.0 => continue,
                Mask::Bool | Mask::Tiles(_) => 0.0,
            };
            let lean = if p.alibi { inputs[slot::SLOPES].at(h as usize) * (j as i64 - own).abs() as f64 } else { 0.0 };
            let scaled = dot(slot::Q, q, slot::K, k, p.d) * f64::from(p.scale());
            let tanh = p.softcap().map_or(0.0, |c| (scaled / f64::from(c)).tanh());
            let capped_score = p.softcap().map_or(scaled, |c| f64::from(c) * tanh);
            let weight = (capped_score - lean + added - lse).exp();
            let drops = drops(p, &inputs[slot::SEED], (b * p.h + h) as usize);
            let kept = drops.map_or(1.0, |drops| f64::from(drops.factor(i as usize, j as usize)));
            let slope = weight * (dot(slot::GRAD, o, slot::V, v, p.dv) * kept - delta) * f64::from(p.scale());
            let slope = slope * (1.0 - tanh * tanh);
            for e in 0..p.d as usize {
                gradients[0][q + e] += slope * inputs[slot::K].at(k + e);
                gradients[1][k + e] += slope * inputs[slot::Q].at(q + e);
            }
            (0..p.dv as usize).for_each(|e| gradients[2][v + e] += weight * kept * inputs[slot::GRAD].at(o + e));
        }
    }
    gradients
}

const PROBLEMS: [&str; 12] = [
    "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,dtype=f32",
    "h=2,sq=300,sk=7,d=2,dtype=f32,causal=true,layout=bshd",
    "h=2,sq=5,sk=9,d=3,dtype=f16,causal=true,mask=add,scale=-0.4",
    "h=1,sq=4,sk=1,d=1,dtype=bf16,mask=add,layout=bshd",
    "b=2,h=2,sq=6,sk=9,d=3,mask=add,over=heads,window=2,corner=bottom",
    "b=2,h=2,sq=9,sk=6,d=3,mask=add,over=each,causal=true,corner=bottom,alibi=true",
    "b=2,h=4,hkv=2,sq=9,sk=6,d=3,mask=add,over=batches,softcap=0.5,alibi=true,window=3,causal=true",
    "b=2,h=2,sq=20,sk=35,d=3,mask=bool,over=heads,dropout=0.3",
    "b=2,h=2,sq=70,sk=40,d=3,mask=tiles,tile=32,over=heads",
    "b=4,h=4,hkv=2,sq=6,d=3,tq=13,causal=true",
    "b=4,h=2,sq=6,sk=9,d=3,tq=13,tk=20,layout=bshd,causal=true,corner=bottom,alibi=true",
    "b=3,h=2,sq=6,sk=9,d=3,tq=13,tk=20,window=3,mask=add,over=each,dropout=0.3",
];

#[test]
fn the_right_answer_is_the_plain_loops() {
    for text in PROBLEMS {
        let p = AttentionGrad::parse(text).unwrap();
        let inputs = AttentionGrad::draw(&p, &mut fastrand::Rng::with_seed(5));
        let answers = AttentionGrad::answer(&p, &inputs);
        for (answer, right) in answers.iter().zip(by_hand(&p.0, &inputs)) {
            assert_eq!(answer.values.len(), right.len());
            for (actual, right) in answer.values.iter().zip(&right) {
                assert!((actual - right).abs() <= 1e-11 * (1.0 + right.abs()), "{text}: {actual} is not {right}");
            }
        }
    }
}

/// With O and log-sum-exps of a forward pass, what is computed is how much the sum of dO ∘ O changes.
#[test]
fn keys_that_only_a_forward_pass_follows_are_refused_by_name() {
    for (rest, field) in [("lengths=true", "'lengths'"), ("page=16", "'page'")] {
        let error = AttentionGrad::parse(&format!("h=2,sq=1,sk=32,d=8,{rest}")).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains("backward"), "{error}");
    }
}

#[test]
fn it_is_the_gradient_of_attention() {
    for text in [
        "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,dtype=f32",
        "h=2,sq=6,d=3,dtype=f32,causal=true,mask=add",
        "h=2,sq=6,d=3,window=2,softcap=0.7",
        "b=2,h=2,sq=19,d=3,mask=bool,dropout=0.4",
        "b=3,h=2,hkv=1,sq=6,sk=7,d=3,tq=9,tk=11,causal=true,corner=bottom",
    ] {
        let p = AttentionGrad::parse(text).unwrap();
        let mut inputs = AttentionGrad::draw(&p, &mut fastrand::Rng::with_seed(6));
        let forward = |inputs: &[Array]| {
            let none = [Array::none(), Array::none()];
            let forward_inputs =
                [&inputs[..slot::GRAD], &inputs[slot::SLOPES..=slot::SEED], &none, &inputs[slot::OFFSETS_Q..]];
            let forward_inputs = forward_inputs.concat();
            Attention::answer(&p.0, &forward_inputs).remove(0).values
        };
        inputs[slot::OUT] = Array::F32(forward(&inputs).into_iter().map(|x| x as f32).collect());
        let answers = AttentionGrad::answer(&p, &inputs);
        let grad = inputs[slot::GRAD].to_f64();
        for (place, answer) in [slot::Q, slot::K, slot::V].into_iter().zip(&answers) {
            for i in 0..answer.values.len() {
                let moved = |by: f32| {
                    let mut inputs = inputs.clone();
                    let Array::F32(all) = &mut inputs[place] else { panic!() };
                    all[i] += by;
                    // What was added, not what should have been: the numbers are f32.
                    let step = f64::from(all[i]);
                    (step, forward(&inputs).iter().zip(&grad).map(|(o, g)| o * g).sum::<f64>())
                };
                let ((above, high), (below, low)) = (moved(1e-3), moved(-1e-3));
                let slope = (high - low) / (above - below);
                let actual = answer.values[i];
                assert!((actual - slope).abs() < 1e-4 * (1.0 + slope.abs()), "{text} slot {place}: {actual}, {slope}");
            }
        }
    }
}

#[test]
fn weights_of_a_row_add_up_to_about_one_however_they_are_drawn() {
    // The others are too large for their log-sum-exps to be computed when they are drawn.
    let large = ["h=2,sq=1024,sk=1024,d=80,dtype=f32", "h=2,sq=1024,sk=1024,d=80,dtype=f32,scale=-3"];
    for text in ["h=1,sq=40,sk=500,d=64,dtype=f32", "h=1,sq=40,sk=500,d=64,dtype=f32,scale=1"].into_iter().chain(large)
    {
        let p = AttentionGrad::parse(text).unwrap();
        let inputs = AttentionGrad::draw(&p, &mut fastrand::Rng::with_seed(7));
        let (q, k) = (&inputs[slot::Q], &inputs[slot::K]);
        for i in [0, 11, 39] {
            let score =
                |j: u64| (0..p.0.d).map(|e| q.at((i * p.0.d + e) as usize) * k.at((j * p.0.d + e) as usize)).sum();
            let lse = inputs[slot::LSE].at(i as usize);
            let sum: f64 = (0..p.0.sk)
                .map(|j| {
                    let s: f64 = score(j);
                    (s * f64::from(p.0.scale()) - lse).exp()
                })
                .sum();
            assert!((0.3..3.0).contains(&sum), "{text}: {sum}");
        }
    }
}

#[test]
fn one_dropped_key_of_a_thousand_shows() {
    let p = AttentionGrad::parse("h=1,sq=64,sk=1024,d=64,dtype=f32").unwrap();
    let inputs = AttentionGrad::draw(&p, &mut fastrand::Rng::with_seed(1));
    let answers = AttentionGrad::answer(&p, &inputs);
    let mut without = inputs.clone();
    let Array::F32(k) = &mut without[slot::K] else { panic!() };
    k[500 * 64..501 * 64].fill(0.0);
    let others = AttentionGrad::answer(&p, &without);
    for (slot, (answer, other)) in answers.iter().zip(&others).enumerate() {
        let differs = |(a, b): &(&f64, &f64)| (*a - *b).abs() > answer.tolerance.allowed(**a);
        let caught = answer.values.iter().zip(&other.values).filter(differs).count();
        assert!(caught > 0, "gradient {slot}");
    }
}
