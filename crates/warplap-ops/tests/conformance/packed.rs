//! Attention and its gradients over packed sequences of any lengths, by every variant that takes them.

use proptest::prelude::*;
use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::op::Op;
use warplap_core::slot::Role;
use warplap_core::variant::Fit;
use warplap_cpu::Cpu;
use warplap_ops::{attention, attention_grad};

/// What every kernel leaves, by output.
type Left = Vec<(String, Vec<Vec<f64>>)>;

/// What kernels leave of a problem with these offsets, poison where nothing was written; and why they refuse.
fn outputs<O: Op>(catalog: &Catalog<O, Cpu>, p: &O::Problem, inputs: &[Array]) -> (Left, Vec<String>) {
    let (cpu, signature) = (Cpu::new(), O::signature(p));
    let (mut outputs, mut refused) = (Vec::new(), Vec::new());
    for variant in catalog.variants().iter().filter(|v| matches!(v.fit(p, &cpu), Fit::Fits(_))) {
        let config = variant.space(p, &cpu).default_config().expect("a setting");
        let kernel = variant.build(p, &config, &cpu).expect("a kernel");
        let slots = signature.slots().iter().enumerate();
        let memory = slots.map(|(i, slot)| {
            let array = match slot.role {
                Role::Out => Array::filled(slot.dtype, slot.len(), f64::NAN),
                _ => inputs[i].clone(),
            };
            slot.present.then(|| cpu.upload(&array).expect("memory"))
        });
        let mut memory: Vec<Option<_>> = memory.collect();
        let mut args: Vec<Arg<'_, Cpu>> = Vec::new();
        for (slot, memory) in signature.slots().iter().zip(&mut memory) {
            args.push(match (slot.role, memory) {
                (_, None) => Arg::Absent,
                (Role::Out, Some(buffer)) => Arg::Write(cpu.view_mut(buffer, 0..slot.len())),
                (_, Some(buffer)) => Arg::Read(cpu.view(buffer, 0..slot.len())),
            });
        }
        let launched = kernel.launch(&mut args, &());
        drop(args);
        if let Err(why) = launched {
            refused.push(why.to_string());
            continue;
        }
        let written = signature.slots().iter().zip(&memory).filter(|(slot, _)| slot.role == Role::Out);
        let written = written.filter_map(|(_, buffer)| buffer.as_ref());
        let values = written.map(|buffer| cpu.download(buffer).expect("numbers").to_f64()).collect();
        outputs.push((variant.id().to_string(), values));
    }
    (outputs, refused)
}

/// Holds every kernel to the right answer.
fn hold<O: Op>(catalog: &Catalog<O, Cpu>, text: &str, places: [usize; 2], offsets: [&[i32]; 2]) {
    let p = O::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let mut inputs = O::draw(&p, &mut fastrand::Rng::with_seed(3));
    for (place, offsets) in places.into_iter().zip(offsets) {
        inputs[place] = Array::I32(offsets.to_vec());
    }
    let right = O::answer(&p, &inputs);
    let (answers, refused) = outputs(catalog, &p, &inputs);
    assert!(answers.len() > 1 && refused.is_empty(), "{text}: nobody but the reference, or {refused:?}");
    for (id, values) in answers {
        assert_eq!(values.len(), right.len(), "{text}: {id}");
        for (n, (values, answer)) in values.iter().zip(&right).enumerate() {
            for (at, (value, right)) in values.iter().zip(&answer.values).enumerate() {
                let near = value == right || (value - right).abs() <= answer.tolerance.allowed(*right);
                assert!(near, "{text}: {id}, output {n} at {at}: {value} is not {right} ({offsets:?})");
            }
        }
    }
}

fn offsets(lengths: &[i32]) -> Vec<i32> {
    std::iter::once(0)
        .chain(lengths.iter().scan(0, |at, n| {
            *at += n;
            Some(*at)
        }))
        .collect()
}

fn lengths() -> impl Strategy<Value = Vec<[i32; 2]>> {
    let one = prop::sample::select(vec![0, 1, 2, 63, 64, 65, 127, 197]);
    let some = prop::collection::vec((one.clone(), one, any::<bool>()), 1..6);
    let pairs = some.prop_map(|all| all.into_iter().map(|(q, k, same)| [q, if same { q } else { k }]).collect());
    pairs.prop_filter("rows of both", |all: &Vec<[i32; 2]>| (0..2).all(|side| all.iter().any(|n| n[side] > 0)))
}

const SEEN: [&str; 5] =
    ["", ",causal=true", ",causal=true,corner=bottom", ",window=20,corner=bottom,alibi=true", ",softcap=2,dropout=0.3"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn packed_sequences_of_any_lengths_are_right(all in lengths(), seen in prop::sample::select(&SEEN), bshd: bool) {
        let [queries, keys] = [0, 1].map(|side| all.iter().map(|n| n[side]).collect::<Vec<i32>>());
        let [sq, sk] = [&queries, &keys].map(|n| n.iter().max().copied().unwrap_or(1));
        let [tq, tk] = [&queries, &keys].map(|n| n.iter().sum::<i32>());
        let layout = if bshd { "bshd" } else { "bhsd" };
        let b = all.len();
        let text = format!("b={b},h=4,hkv=2,sq={sq},sk={sk},d=8,dv=5,tq={tq},tk={tk},layout={layout}{seen}");
        let (q, k) = (offsets(&queries), offsets(&keys));
        use attention::slot as forward;
        use attention_grad::slot as backward;
        let places = [forward::OFFSETS_Q, forward::OFFSETS_K];
        hold(&attention::cpu::catalog(), &format!("{text},lse=true"), places, [&q, &k]);
        let places = [backward::OFFSETS_Q, backward::OFFSETS_K];
        hold(&attention_grad::cpu::catalog(), &text, places, [&q, &k]);
    }

    /// Offsets that ascend are followed as far as they stay inside, others are refused by name. Every address is checked
    /// where debug assertions are on.
    #[test]
    fn wild_offsets_lead_nobody_outside(
        wild in prop::collection::vec(prop_oneof![any::<i32>(), -9i32..70], 8),
        (sorted, seen) in (any::<bool>(), prop::sample::select(&SEEN)),
    ) {
        let text = format!("b=3,h=2,sq=30,sk=40,d=8,tq=50,tk=60{seen}");
        let mut offsets = [wild[..4].to_vec(), wild[4..].to_vec()];
        if sorted {
            offsets.iter_mut().for_each(|all| all.sort_unstable());
        }
        let ascend = offsets.iter().all(|all| all.is_sorted());
        check::<attention::Attention>(&attention::cpu::catalog(), &text, [10, 11], &offsets, ascend);
        check::<attention_grad::AttentionGrad>(&attention_grad::cpu::catalog(), &text, [12, 13], &offsets, ascend);
    }
}

fn check<O: Op>(catalog: &Catalog<O, Cpu>, text: &str, places: [usize; 2], offsets: &[Vec<i32>; 2], ascend: bool) {
    let p = O::parse(text).expect("a problem");
    let mut inputs = O::draw(&p, &mut fastrand::Rng::with_seed(3));
    for (place, offsets) in places.into_iter().zip(offsets) {
        inputs[place] = Array::I32(offsets.clone());
    }
    let (answers, refused) = outputs(catalog, &p, &inputs);
    assert_eq!((answers.len() > 1, refused.is_empty()), (ascend, ascend), "{offsets:?}");
    assert!(refused.iter().all(|why| why.contains("offsets_") && why.contains("ascend")), "{refused:?}");
}
