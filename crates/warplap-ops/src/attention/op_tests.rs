//! What a problem text promises.

use super::*;
use crate::attention::Attention;
use proptest::prelude::*;
use warplap_core::measure::Policy;
use warplap_core::op::Op;

#[test]
fn bad_problems_name_the_field() {
    for (text, field) in [
        ("attention:h=8,sq=0,d=64", "'sq'"),
        ("attention:sq=1,d=1,b=1", "'h'"),
        ("attention:h=8,sq=4,d=64,hkv=3", "'hkv'"),
        ("attention:h=8,sq=4,d=1025", "'d'"),
        ("attention:h=8,sq=4,d=64,dv=2000", "'dv'"),
        ("attention:h=8,sq=4,d=64,mask=mul", "'mask'"),
        ("attention:h=8,sq=4,d=64,causal=yes", "'causal'"),
        ("attention:h=8,sq=4,d=64,scale=inf", "'scale'"),
        ("attention:h=8,sq=4,d=64,layout=sbhd", "'layout'"),
        ("attention:h=8,sq=4,d=64,dtype=i32", "'dtype'"),
        ("attention:h=8,sq=4,d=64,casual=true", "'casual'"),
        ("attention:h=1024,sq=1048576,d=64", "'sq'"),
        ("attention:b=1048576,h=1048576,hkv=1,sq=1,sk=1048576,d=1024", "'sq'"),
        ("attention:h=1,sq=100000,sk=100000,d=1,mask=add", "'mask'"),
        ("attention:h=8,sq=4,d=64,pages=9", "'pages'"),
        ("attention:h=8,sq=4,d=64,page=0", "'page'"),
        ("attention:h=8,sq=4,d=64,lengths=yes", "'lengths'"),
        ("attention:h=8,sq=1,d=64,page=64,pages=1000000", "'pages'"),
        ("attention:h=8,sq=4,d=64,tq=5", "'tq'"),
        ("attention:b=2,h=8,sq=4,d=64,tq=5,tk=9", "'tk'"),
        ("attention:b=2,h=8,sq=4,d=64,tk=5", "'tk'"),
        ("attention:b=2,h=8,sq=4,d=64,tq=5,lengths=true", "'tq'"),
        ("attention:b=2,h=8,sq=4,d=64,tq=5,page=16", "'tq'"),
        ("attention:b=1000,h=64,sq=1000000,d=64,tq=1000000", "'tq'"),
    ] {
        let error = Attention::parse(text).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains("expected"), "{text}: {error}");
    }
}

#[test]
fn every_field_that_matters_changes_the_key() {
    let key =
        |text: &str, bucket: &Bucket| Attention::key(&Attention::parse(text).unwrap(), bucket, Policy::default()).text;
    let plain = "b=1,h=8,sq=64,sk=64,d=64,dtype=f32";
    for other in [
        "b=2,h=8,sq=64,sk=64,d=64,dtype=f32",
        "b=1,h=4,sq=64,sk=64,d=64,dtype=f32",
        "b=1,h=8,sq=65,sk=64,d=64,dtype=f32",
        "b=1,h=8,sq=64,sk=65,d=64,dtype=f32",
        "b=1,h=8,sq=64,sk=64,d=65,dtype=f32",
        "b=1,h=8,sq=64,sk=64,d=64,dtype=bf16",
        "b=1,h=8,sq=64,sk=64,d=64,dtype=f32,dv=32",
        "b=1,h=8,sq=64,sk=64,d=64,dtype=f32,hkv=2",
        "b=1,h=8,sq=64,sk=64,d=64,dtype=f32,causal=true",
        "b=1,h=8,sq=64,sk=64,d=64,dtype=f32,mask=add",
        "b=1,h=8,sq=64,sk=64,d=64,dtype=f32,layout=bshd",
        "b=1,h=8,sq=64,sk=64,d=64,dtype=f32,lengths=true",
        "b=1,h=8,sq=64,sk=64,d=64,dtype=f32,page=16",
        "b=1,h=8,sq=64,sk=64,d=64,dtype=f32,tq=64",
    ] {
        assert_ne!(key(plain, &Bucket::Exact), key(other, &Bucket::Exact), "{other}");
        assert_ne!(key(plain, &Bucket::PowerOfTwo), key(other, &Bucket::PowerOfTwo), "{other}");
    }
    assert_eq!(key("h=1,sq=60,d=8", &Bucket::PowerOfTwo), key("h=1,sq=63,sk=61,d=8", &Bucket::PowerOfTwo));
    assert_ne!(key("h=1,sq=1,sk=64,d=8", &Bucket::PowerOfTwo), key("h=1,sq=2,sk=64,d=8", &Bucket::PowerOfTwo));
    let same = key("h=1,sq=4,d=8,scale=0.7", &Bucket::Exact);
    assert_eq!(same, key("h=1,sq=4,d=8", &Bucket::Exact), "a scale decides nothing");
    for bucket in [Bucket::Exact, Bucket::PowerOfTwo] {
        let pool = |pages: u64| format!("b=3,h=1,sq=1,sk=60,d=8,page=16,pages={pages}");
        assert_eq!(key(&pool(20), &bucket), key(&pool(9000), &bucket), "how large a pool is decides nothing");
    }
}

#[test]
fn only_pairs_that_are_seen_count_as_work() {
    for (sq, sk) in [(1, 1), (5, 5), (3, 9), (9, 3), (1, 7), (7, 1)] {
        let mut p = AttentionProblem::new(2, 3, sq, sk, 4, DType::F32);
        p.dv = 6;
        assert_eq!(p.work().flops, (2 * 2 * 3 * sq * sk * (4 + 6)) as f64);
        p.causal = true;
        let seen: u64 = (0..sq).map(|i| (i + 1).min(sk)).sum();
        assert_eq!(p.pairs(), seen, "{sq} x {sk}");
        assert_eq!(p.work().flops, (2 * 2 * 3 * seen * (4 + 6)) as f64);
    }
}

#[test]
fn a_large_pool_is_raced_as_a_small_one() {
    let p = Attention::parse("b=3,h=2,sq=1,sk=60,d=8,page=16,pages=9000").unwrap();
    assert_eq!(p.k_len(), 9000 * 16 * 2 * 8);
    let raced = p.raced();
    assert_eq!((raced.pieces(), raced.k_len()), ([15, 16], 15 * 16 * 2 * 8));
    assert_eq!(
        Attention::key(&p, &Bucket::Exact, Policy::default()),
        Attention::key(&raced, &Bucket::Exact, Policy::default())
    );
    assert!(!Attention::text(&raced).contains("pages"));
    let shared = Attention::parse("b=300,h=2,sq=1,sk=600,d=8,page=16,pages=90").unwrap();
    assert_eq!(shared.raced(), shared, "nor is a small one raced as a large one");
}

#[test]
fn packed_sequences_share_keys_by_totals_and_the_longest() {
    let key =
        |text: &str, bucket: &Bucket| Attention::key(&Attention::parse(text).unwrap(), bucket, Policy::default()).text;
    let of = |b: u64, sq: u64, tq: u64| format!("b={b},h=2,sq={sq},d=8,tq={tq}");
    for bucket in [Bucket::Changing, Bucket::PowerOfTwo] {
        assert_eq!(
            key(&of(9, 900, 3000), &bucket),
            key(&of(30, 1000, 4000), &bucket),
            "how many they are decides nothing"
        );
        assert_ne!(key(&of(9, 900, 3000), &bucket), key(&of(9, 400, 3000), &bucket));
        assert_ne!(key(&of(90, 900, 3000), &bucket), key(&of(90, 900, 30000), &bucket));
        let raced = Attention::parse(&of(30, 1000, 4000)).unwrap().representative(&bucket);
        assert_eq!(Attention::parse(&Attention::text(&raced)).unwrap(), raced, "what is raced is a problem");
    }
    assert_ne!(key(&of(9, 900, 3000), &Bucket::Exact), key(&of(10, 900, 3000), &Bucket::Exact));
}

#[test]
fn only_sequences_as_they_are_drawn_count_as_work() {
    let work = |text: &str| Attention::parse(text).unwrap().work();
    // 64 and none of 64, and 32; then one of one.
    assert_eq!(work("b=3,h=3,sq=64,d=4,tq=96").flops, (2 * 3 * (64 * 64 + 32 * 32) * 8) as f64);
    assert_eq!(work("b=1,h=3,sq=64,d=4,tq=64").flops, work("h=3,sq=64,d=4").flops);
}

#[test]
fn only_keys_that_batches_have_count_as_work() {
    let work = |text: &str| Attention::parse(text).unwrap().work();
    // All keys and none; a page that nobody names is taken off.
    assert_eq!(work("b=2,h=3,sq=1,sk=64,d=4,lengths=true").flops, (2 * 3 * 64 * 8) as f64);
    assert_eq!(work("b=2,h=3,sq=1,sk=64,d=4,page=16").flops, (2 * 3 * (128 - 16) * 8) as f64);
    assert_eq!(work("h=3,sq=1,sk=64,d=4,page=64").flops, (2 * 3 * 64 * 8) as f64);
}

proptest! {
    #[test]
    fn a_problem_reads_back_what_it_prints(
        (b, hkv, group, sq, sk) in (1u64..9, 1u64..5, 1u64..5, 1u64..3000, 1u64..3000),
        (d, dv) in (1u64..=1024, 1u64..=1024),
        dtype in prop::sample::select(vec![DType::F32, DType::F16, DType::Bf16]),
        (causal, mask, bshd, totals) in (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        scale in prop::option::of(-100f32..100.0),
        (lengths, page) in (any::<bool>(), prop::option::of((1u64..100, 1u64..50))),
    ) {
        let mut p = AttentionProblem::new(b, hkv * group, sq, sk, d, dtype);
        (p.hkv, p.dv, p.causal) = (hkv, dv, causal);
        p.mask = if mask { Mask::Add } else { Mask::None };
        p.layout = if bshd { Order::Bshd } else { Order::Bhsd };
        p.lengths = lengths;
        p.paged = page.map(|(page, pages)| crate::attention::Paged { page, pages });
        if !p.is_uneven() && totals {
            p.packed = Some(crate::attention::Packed { tq: (b * sq).div_ceil(2), tk: b * sk });
        }
        let p = scale.map_or(p, |s| p.with_scale(s));
        prop_assert_eq!(Attention::parse(&Attention::text(&p)).unwrap(), p);
    }
}
