use super::*;

#[test]
fn the_right_answer_is_the_plain_loops() {
    for text in [
        "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,dtype=f32",
        "h=2,sq=300,sk=7,d=2,dtype=f32,causal=true,layout=bshd",
        "h=2,sq=5,sk=9,d=3,dtype=f16,causal=true,mask=add,scale=-0.4",
        "h=1,sq=4,sk=1,d=1,dtype=bf16,mask=add,layout=bshd",
        "b=2,h=2,sq=6,sk=9,d=3,mask=add,over=heads,window=2,corner=bottom,lse=true",
        "b=2,h=2,sq=9,sk=6,d=3,mask=add,over=each,causal=true,corner=bottom,alibi=true",
        "b=2,h=4,hkv=2,sq=9,sk=6,d=3,mask=add,over=batches,softcap=0.5,alibi=true,window=3,causal=true",
        "b=2,h=2,sq=20,sk=35,d=3,mask=bool,over=heads,dropout=0.3,lse=true",
        "b=2,h=2,sq=70,sk=40,d=3,mask=tiles,tile=32,over=heads,lse=true",
        "b=1,h=2,sq=33,sk=100,d=3,mask=tiles,tile=32,live=60,causal=true,corner=bottom",
        "b=4,h=2,sq=3,sk=9,d=3,lengths=true,causal=true,corner=bottom,alibi=true,lse=true",
        "b=3,h=2,hkv=1,sq=300,sk=9,d=3,lengths=true,window=2,corner=bottom,page=4",
        "b=3,h=4,hkv=2,sq=2,sk=9,d=3,dv=2,page=4,pages=11,layout=bshd,lse=true",
        "b=3,h=4,hkv=2,sq=2,sk=9,d=3,page=4,pages=2,lengths=true,causal=true,mask=add,over=each,dropout=0.2",
    ] {
        let p = Attention::parse(text).unwrap();
        let inputs = Attention::draw(&p, &mut fastrand::Rng::with_seed(5));
        let answers = Attention::answer(&p, &inputs);
        let answer = &answers[0];
        let at = |a: &Array, s: Strides, b: u64, h: u64, i: u64, x: u64| {
            a.at(b as usize * s.batch + h as usize * s.head + i as usize * s.row + x as usize)
        };
        for (b, h, i) in (0..p.b).flat_map(|b| (0..p.h).flat_map(move |h| (0..p.sq).map(move |i| (b, h, i)))) {
            let kv = h / p.group();
            let has = if p.lengths { inputs[slot::LENGTHS].at(b as usize) as u64 } else { p.sk };
            // Which batch or page a key is in, and its place there.
            let place_of_key = |j: u64| match p.paged {
                None => Some((b, j)),
                Some(Paged { page, .. }) => {
                    let number = inputs[slot::TABLE].at((b * p.sk.div_ceil(page) + j / page) as usize);
                    (number >= 0.0).then_some((number as u64, j % page))
                }
            };
            let weight = |j: u64| {
                let Some((piece, place)) = place_of_key(j).filter(|_| j < has) else { return 0.0 };
                let dot: f64 = (0..p.d)
                    .map(|x| {
                        at(&inputs[slot::Q], p.q_strides(), b, h, i, x)
                            * at(&inputs[slot::K], p.k_strides(), piece, kv, place, x)
                    })
                    .sum();
                let m = p.mask_strides();
                let side = p.mask.tiles().map_or(1, |tiles| tiles.side);
                let at = b as usize * m.batch + h as usize * m.head + (i / side) as usize * m.row + (j / side) as usize;
                let added = match p.mask {
                    Mask::None => 0.0,
                    Mask::Add => inputs[slot::MASK].at(at),
                    Mask::Bool | Mask::Tiles(_) if inputs[slot::MASK].at(at) == 0.0 => return 0.0,
                    Mask::Bool | Mask::Tiles(_) => 0.0,
                };
                let own = i as i64 + if p.corner == Corner::Bottom { has as i64 - p.sq as i64 } else { 0 };
                let away = j as i64 - own;
                if p.causal && away > 0 || p.window.is_some_and(|w| away.unsigned_abs() > w) {
                    return 0.0;
                }
                let scaled = dot * f64::from(p.scale());
                let capped_score = p.softcap().map_or(scaled, |c| f64::from(c) * (scaled / f64::from(c)).tanh());
                let lean = if p.alibi { inputs[slot::SLOPES].at(h as usize) * away.abs() as f64 } else { 0.0 };
                (capped_score - lean + added).exp()
            };
            let sum: f64 = (0..p.sk).map(weight).sum();
            if p.lse {
                let actual_lse = answers[1].values[((b * p.h + h) * p.sq + i) as usize];
                assert!(actual_lse == sum.ln() || (actual_lse - sum.ln()).abs() < 1e-12, "{text}: {actual_lse}");
            }
            for x in 0..p.dv {
                let drops = drops(&p, &inputs[slot::SEED], (b * p.h + h) as usize);
                let kept = |j: u64| drops.map_or(1.0, |d| f64::from(d.factor(i as usize, j as usize)));
                let value = |j: u64| {
                    place_of_key(j).map_or(0.0, |(piece, j)| at(&inputs[slot::V], p.v_strides(), piece, kv, j, x))
                };
                let total: f64 = (0..p.sk).map(|j| weight(j) * kept(j) * value(j)).sum();
                let right = if sum > 0.0 { total / sum } else { 0.0 };
                let o = p.o_strides();
                let actual =
                    answer.values[b as usize * o.batch + h as usize * o.head + i as usize * o.row + x as usize];
                assert!((actual - right).abs() < 1e-12, "{text}: {actual} is not {right}");
            }
        }
    }
}

/// Sequences one behind the other are what each of them is alone.
#[test]
fn packed_sequences_are_attended_to_one_by_one() {
    for text in [
        "h=4,hkv=2,sq=7,sk=9,d=4,dv=3,lse=true",
        "h=2,sq=7,sk=9,d=4,causal=true,corner=bottom,layout=bshd,alibi=true,lse=true",
        "h=2,sq=7,sk=9,d=4,causal=true,window=2,softcap=2",
    ] {
        let p = Attention::parse(&format!("b=4,tq=15,tk=20,{text}")).unwrap();
        let inputs = Attention::draw(&p, &mut fastrand::Rng::with_seed(5));
        let answers = Attention::answer(&p, &inputs);
        let batches = Batches::of(&p, [&inputs[slot::OFFSETS_Q], &inputs[slot::OFFSETS_K]]);
        let mut rows = 0;
        for b in 0..4 {
            let (own, met) = (batches.queries(b), batches.keys(b));
            rows += own.len();
            if own.is_empty() || met.is_empty() {
                continue;
            }
            let mut one = p;
            (one.b, one.sq, one.sk, one.packed) = (1, own.len() as u64, met.len() as u64, None);
            // Each tensor's rows of this sequence, in the order of the problem.
            let cut = |slot: usize, strides: Strides, heads: u64, rows: &Range<usize>, width: u64, to: Strides| {
                let all = inputs[slot].to_f64();
                let mut part = vec![0.0; heads as usize * rows.len() * width as usize];
                for (h, i) in (0..heads as usize).flat_map(|h| rows.clone().map(move |i| (h, i))) {
                    let (from, to) = (h * strides.head + i * strides.row, h * to.head + (i - rows.start) * to.row);
                    part[to..to + width as usize].copy_from_slice(&all[from..from + width as usize]);
                }
                Array::from_f64(p.dtype, part)
            };
            let mut sequence_inputs = inputs.clone();
            sequence_inputs[slot::Q] = cut(slot::Q, p.q_strides(), p.h, &own, p.d, one.q_strides());
            sequence_inputs[slot::K] = cut(slot::K, p.k_strides(), p.hkv, &met, p.d, one.k_strides());
            sequence_inputs[slot::V] = cut(slot::V, p.v_strides(), p.hkv, &met, p.dv, one.v_strides());
            let right = Attention::answer(&one, &sequence_inputs);
            for (h, i) in (0..p.h as usize).flat_map(|h| own.clone().map(move |i| (h, i))) {
                let (from, to) = (p.o_strides(), one.o_strides());
                for x in 0..p.dv as usize {
                    let (a, b) = (h * from.head + i * from.row + x, h * to.head + (i - own.start) * to.row + x);
                    assert_eq!(answers[0].values[a], right[0].values[b], "{text}");
                }
                if p.lse {
                    let (a, b) = (h * 15 + i, h * own.len() + i - own.start);
                    assert_eq!(answers[1].values[a], right[1].values[b], "{text}");
                }
            }
        }
        assert_eq!(rows, 15);
    }
}

#[test]
fn one_dropped_key_of_two_thousand_shows() {
    let p = AttentionProblem::new(1, 1, 8, 2048, 64, DType::F32);
    let inputs = Attention::draw(&p, &mut fastrand::Rng::with_seed(1));
    let answer = &Attention::answer(&p, &inputs)[0];
    let mut without = inputs.clone();
    if let Array::F32(v) = &mut without[slot::V] {
        v[1000 * 64..1001 * 64].fill(0.0);
    }
    let other = &Attention::answer(&p, &without)[0];
    let caught =
        answer.values.iter().zip(&other.values).filter(|(a, b)| (*a - *b).abs() > answer.tolerance.allowed(**a));
    assert!(caught.count() > p.o_len() / 2);
}

#[test]
fn slots_span_what_the_problem_says_in_both_layouts() {
    for text in [
        "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,mask=add",
        "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,layout=bshd",
        "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,tq=4,tk=7",
        "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,tq=4,tk=7,layout=bshd",
    ] {
        let p = Attention::parse(text).unwrap();
        let signature = Attention::signature(&p);
        let lens: Vec<usize> = signature.slots().iter().map(Slot::len).collect();
        let starts = if p.packed.is_some() { 3 } else { 0 };
        let tensors = [p.q_len(), p.k_len(), p.v_len(), p.mask_len(), p.o_len()];
        assert_eq!(lens, [&tensors[..], &[0; 5], &[starts; 2]].concat(), "{text}");
        assert_eq!(signature.slots()[slot::OUT].name, "out");
    }
}
