//! Texts, ragged problems and floors of products of 8-bit numbers.

use std::collections::BTreeMap;

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::op::Op;
use warplap_core::problem::Problem;
use warplap_core::roofline::Ceilings;

use super::{Qgemm, QgemmProblem, Scale};

#[test]
fn a_problem_reads_back_what_it_prints() {
    for text in [
        "qgemm:m=16,n=4096,k=8192,dtype=f8e4m3,out=bf16,scale=tensor",
        "qgemm:m=1,n=7,k=3,dtype=f8e4m3,out=f32,scale=row,fast=true",
        "qgemm:m=100,n=300,k=500,dtype=f8e4m3,out=f16,scale=block",
        "qgemm:m=5,n=6,k=7,dtype=f8e4m3,out=f16,scale=none",
        "qgemm:m=64,n=64,k=64,dtype=i8,out=i32,scale=none",
    ] {
        assert_eq!(Qgemm::text(&Qgemm::parse(text).unwrap()), text);
    }
    assert_eq!(Qgemm::parse("m=5,n=6,k=7,dtype=i8").unwrap(), QgemmProblem::int8(5, 6, 7));
    let usual = QgemmProblem::fp8(5, 6, 7, DType::Bf16, Scale::Tensor);
    assert_eq!(Qgemm::parse("m=5,n=6,k=7").unwrap(), usual);
}

#[test]
fn what_does_not_go_together_is_refused_with_the_field_and_what_does() {
    for (rest, field, remedy) in [
        ("dtype=f32", "dtype", "one of f8e4m3, i8"),
        ("dtype=i8,out=f32", "out", "i32"),
        ("dtype=i8,scale=row", "scale", "none"),
        ("dtype=i8,fast=true", "fast", "exact"),
        ("out=i32", "out", "bf16, f16 or f32"),
        ("scale=column", "scale", "block"),
        ("scale=block,fast=true", "fast", "false"),
    ] {
        let said = Qgemm::parse(&format!("m=8,n=8,k=8,{rest}")).unwrap_err().to_string();
        assert!(said.contains(&format!("'{field}'")) && said.contains(remedy), "{rest}: {said}");
    }
}

#[test]
fn a_ragged_problem_is_smaller_and_takes_the_same_kernels() {
    for (m, n, k) in [(1, 16, 16), (4096, 4096, 4096), (16, 8192, 128), (100, 77, 1000), (17, 33, 65), (5, 1, 1)] {
        let p = QgemmProblem::fp8(m, n, k, DType::Bf16, Scale::Block);
        if let Some(ragged) = p.ragged() {
            assert_eq!(ragged.is_even(), p.is_even(), "{p:?} {ragged:?}");
            assert!(ragged.m <= m && ragged.n <= n && ragged.k <= k);
        }
        let bucket = Bucket::PowerOfTwo;
        assert_eq!(p.representative(&bucket).is_even(), p.is_even(), "{p:?}");
    }
    assert_eq!(QgemmProblem::int8(4096, 4096, 4096).ragged(), Some(QgemmProblem::int8(263, 272, 304)));
}

#[test]
fn the_floor_is_that_of_twice_the_half_types_or_four_times_f32() {
    let p = QgemmProblem::int8(1000, 1000, 1000);
    let of = |rates: &[(DType, f64)]| {
        let flops = BTreeMap::from_iter(rates.iter().copied());
        p.floor(&Ceilings { flops, ..Ceilings::default() }, false)
    };
    assert_eq!(of(&[(DType::Bf16, 1e12), (DType::F32, 1e11)]), Some(1e-3));
    assert_eq!(of(&[(DType::Bf16, 1e12), (DType::F32, 1e12)]), Some(5e-4));
    assert_eq!(of(&[]), None);
}
