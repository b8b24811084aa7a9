//! Texts of activations.

use warplap_core::op::Op;
use warplap_core::problem::Problem;

use super::Gated;
use crate::gemm::{Activation, Join};

#[test]
fn a_problem_reads_back_what_it_prints() {
    for text in [
        "gated:rows=4096,n=14336,dtype=bf16,act=silu",
        "gated:rows=7,n=33,dtype=f16,act=gelu_tanh,lda=66,ldb=40",
        "gated:rows=7,n=33,dtype=f16,act=none,join=add,ldb=40",
        "gated:rows=7,n=33,dtype=f32,act=tanh,join=none,lda=40",
    ] {
        assert_eq!(Gated::text(&Gated::parse(text).unwrap()), text);
    }
    let p = Gated::parse("rows=10,n=100,dtype=f16").unwrap();
    assert_eq!((p.act, p.join, p.lda, p.work().bytes), (Activation::Silu, Join::Mul, 100, 6000.0));
    assert_eq!(Gated::parse("rows=10,n=100,dtype=f16,join=none").unwrap().work().bytes, 4000.0);
}

#[test]
fn what_is_wrong_is_named() {
    for (fields, field) in [
        ("rows=1,n=1,act=swish", "'act'"),
        ("rows=1,n=8,lda=7", "'lda'"),
        ("rows=1,n=8,join=sub", "'join'"),
        ("rows=1,n=8,join=none,ldb=9", "'ldb'"),
        ("rows=1048576,n=4096", "'lda'"),
        ("rows=1,n=8,ldb=99999999999", "'ldb'"),
        ("rows=1,n=1,dtype=f64", "'dtype'"),
    ] {
        let error = Gated::parse(fields).unwrap_err().to_string();
        assert!(error.contains(field), "{fields}: {error}");
    }
}
