//! What the text of a block-sparse product promises.

use super::*;
use crate::bsr::Bsr;
use proptest::prelude::*;
use warplap_core::measure::Policy;
use warplap_core::op::Op;

#[test]
fn a_problem_reads_back_what_it_prints() {
    for text in [
        "bsr:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f32",
        "bsr:m=4096,k=2048,n=7,bs=32,density=0.1,dtype=bf16,imbalance=4,b=col",
        "bsr:m=1024,k=1024,n=64,bs=16,density=0.3,dtype=f16,pattern=causal",
        "bsr:m=64,k=64,n=1,bs=8,density=0,dtype=f32",
        "bsr:m=64,k=64,n=1,bs=8,density=1,dtype=f32,pattern=banded",
        "bsr:m=64,k=64,n=8,bs=16,density=0.5,dtype=f32,alpha=-0.75,beta=2,turned=true,tf32=true",
        "bsr:m=64,k=64,n=8,bs=16,density=0.5,dtype=f32,c=col,beta=1,bias=true",
        "bsr:m=64,k=96,n=8,bs=16,bc=32,density=0.5,dtype=f32,b=col,c=col",
        "bsr:m=64,k=64,n=8,bs=16,density=0.5,dtype=f32,beta=2,inplace=true",
        "bsr:m=64,k=64,n=8,bs=16,density=0.5,dtype=f8e4m3,b=col,c=col,alpha=0.25,turned=true",
    ] {
        assert_eq!(Bsr::text(&Bsr::parse(text).unwrap()), text);
    }
}

proptest! {
    #[test]
    fn any_legal_problem_reads_back_the_same(
        (rows, columns, n) in (1u64..40, 1u64..40, 1u64..600),
        (bs, wide) in (1u64..=16, 1u64..=16),
        density in 0.0f64..=1.0,
        skew in 1.0f64..6.0,
        pattern in prop::sample::select(Pattern::ALL.to_vec()),
    ) {
        let bs = bs * 8;
        let (bs, bc) = (bs, 8 * wide);
        let shape = format!("m={},k={},n={n},bs={bs},bc={bc}", rows * bs, columns * bc);
        let text = format!("{shape},density={density},pattern={pattern}");
        for text in [text.clone(), format!("{text},imbalance={skew}")] {
            if let Ok(p) = Bsr::parse(&text) {
                prop_assert_eq!(Bsr::parse(&Bsr::text(&p)).unwrap(), p, "{}", Bsr::text(&p));
                let r = p.representative(&Bucket::PowerOfTwo);
                prop_assert!(r.m >= p.m && r.m.is_multiple_of(bs) && r.row_max <= r.columns() as u64);
            }
        }
    }
}

#[test]
fn bad_problems_name_the_field_and_the_remedy() {
    for (text, parts) in [
        ("bsr:m=100,k=64,n=1,bs=16,density=0.5", ["'m'", "pad to 112"]),
        ("bsr:m=64,k=65,n=1,bs=16,density=0.5", ["'k'", "multiple of bs=16"]),
        ("bsr:m=64,k=64,n=0,bs=16,density=0.5", ["'n'", "from 1"]),
        ("bsr:m=64,k=64,n=1,bs=12,density=0.5", ["'bs'", "multiple of 8"]),
        ("bsr:m=256,k=256,n=1,bs=256,density=0.5", ["'bs'", "to 128"]),
        ("bsr:m=64,k=64,n=1,bs=16,bc=12,density=0.5", ["'bc'", "multiple of 8"]),
        ("bsr:m=64,k=48,n=1,bs=16,bc=32,density=0.5", ["'k'", "multiple of bc=32"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=0.5,c=up", ["'c'", "one of row, col"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=nan", ["'density'", "from 0 to 1"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1.5", ["'density'", "from 0 to 1"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=-0.1", ["'density'", "from 0 to 1"]),
        ("bsr:m=64,k=64,n=1,bs=16", ["'density'", "missing"]),
        ("bsr:m=64,k=64,n=1,bs=16,desnity=1", ["'desnity'", "did you mean 'density'"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1,imbalance=2", ["'imbalance'", "at most 1"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=0.5,imbalance=0.5", ["'imbalance'", "from 1"]),
        ("bsr:m=256,k=256,n=1,bs=16,density=0.9,pattern=causal", ["'density'", "pattern=causal"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1,pattern=tartan", ["'pattern'", "banded"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1,dtype=f64", ["'dtype'", "bf16"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1,dtype=f8e5m2", ["'dtype'", "f8e4m3"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1,dtype=f8e4m3,b=row", ["'b'", "col with dtype=f8e4m3"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1,dtype=f8e4m3,tf32=true", ["'tf32'", "dtype=f32"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1,b=up", ["'b'", "one of row, col"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1,alpha=inf", ["'alpha'", "finite"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1,alpha=2,inplace=true", ["'inplace'", "beta"]),
        ("bsr:m=64,k=64,n=1,bs=16,density=1,dtype=f16,tf32=true", ["'tf32'", "dtype=f32"]),
        ("bsr:m=1048576,k=1048576,n=1,bs=128,density=1", ["'density'", "elements in blocks"]),
    ] {
        let error = Bsr::parse(text).unwrap_err().to_string();
        assert!(parts.iter().all(|p| error.contains(p)) && error.contains("expected"), "{text}: {error}");
    }
}

#[test]
fn every_field_that_matters_changes_the_key_and_exact_counts_do_not() {
    let key = |text: &str| Bsr::key(&Bsr::parse(text).unwrap(), &Bucket::Exact, Policy::default());
    let plain = "m=2048,k=2048,n=64,bs=32,density=0.125";
    for other in [
        "m=1024,k=2048,n=64,bs=32,density=0.125",
        "m=2048,k=1024,n=64,bs=32,density=0.125",
        "m=2048,k=2048,n=65,bs=32,density=0.125",
        "m=2048,k=2048,n=64,bs=64,density=0.125",
        "m=2048,k=2048,n=64,bs=32,bc=64,density=0.125",
        "m=2048,k=2048,n=64,bs=32,density=0.125,c=col",
        "m=2048,k=2048,n=64,bs=32,density=0.2",
        "m=2048,k=2048,n=64,bs=32,density=0",
        "m=2048,k=2048,n=64,bs=32,density=0.125,imbalance=2",
        "m=2048,k=2048,n=64,bs=32,density=0.125,dtype=f16",
        "m=2048,k=2048,n=64,bs=32,density=0.125,dtype=f8e4m3",
        "m=2048,k=2048,n=64,bs=32,density=0.125,b=col",
        "m=2048,k=2048,n=64,bs=32,density=0.125,alpha=2",
        "m=2048,k=2048,n=64,bs=32,density=0.125,beta=1",
        "m=2048,k=2048,n=64,bs=32,density=0.125,turned=true",
        "m=2048,k=2048,n=64,bs=32,density=0.125,beta=1,inplace=true",
        "m=2048,k=2048,n=64,bs=32,density=0.125,tf32=true",
    ] {
        assert_ne!(key(plain), key(other), "{other}");
    }
    assert_eq!(key(plain), key("m=2048,k=2048,n=64,bs=32,density=0.13"));
    assert_eq!(key(&format!("{plain},alpha=2,beta=3")), key(&format!("{plain},alpha=1,beta=0.5")));
    assert_ne!(key(&format!("{plain},beta=1")), key(&format!("{plain},beta=1,inplace=true")));
    assert_eq!(
        key("m=2048,k=2048,n=64,bs=32,density=0.1,imbalance=3"),
        key("m=2048,k=2048,n=64,bs=32,density=0.1,imbalance=3.5")
    );
}

#[test]
fn the_problem_of_a_matrix_holds_its_counts() {
    let p = BsrProblem::of((32, 64, 5), 16, DType::F32, Layout::Row, &[0, 1, 4]).unwrap();
    assert_eq!((p.nnz, p.row_max, p.imbalance()), (4, 3, 1.5));
    assert!(BsrProblem::of((32, 64, 5), 16, DType::F32, Layout::Row, &[0, 5, 6]).is_err());
    assert!(BsrProblem::of((33, 64, 5), 16, DType::F32, Layout::Row, &[0, 1, 4]).is_err());
}

#[test]
fn bytes_lie_along_k_and_c_has_two_for_an_element() {
    let p = Bsr::parse("m=2048,k=2048,n=512,bs=64,density=0.125,dtype=f8e4m3").unwrap();
    assert_eq!((p.b, p.out(), p.is_bytes()), (Layout::Col, DType::Bf16, true));
    assert_eq!(BsrProblem::new(2048, 2048, 512, 64, 0.125, DType::F8E4m3).unwrap(), p);
    let half = Bsr::parse("m=2048,k=2048,n=512,bs=64,density=0.125,dtype=bf16").unwrap();
    assert_eq!(half.work().flops, p.work().flops);
    let (values, needed) = (p.values_len() as f64, p.row_max as f64 * 64.0 * 512.0);
    assert_eq!(half.work().bytes - p.work().bytes, values + needed);
    let refused = BsrProblem::of((64, 64, 5), 64, DType::F8E4m3, Layout::Row, &[0, 1]).unwrap_err().to_string();
    assert!(refused.contains("'b'") && refused.contains("expected col"), "{refused}");
    let rates = [(DType::Bf16, 1e12), (DType::F32, 1e11)];
    let ceilings = Ceilings { flops: rates.into_iter().collect(), ..Ceilings::default() };
    assert_eq!(p.floor(&ceilings, false), Some(p.work().flops / 2e12));
}

#[test]
fn useful_work_counts_stored_blocks_only() {
    let p = BsrProblem::new(2048, 2048, 512, 64, 0.125, DType::F32).unwrap();
    assert_eq!(p.work().flops, 2.0 * 2048.0 * 2048.0 * 512.0 / 8.0);
    let empty = BsrProblem::new(2048, 2048, 512, 64, 0.0, DType::F32).unwrap();
    assert_eq!(empty.work().flops, 0.0);
}
