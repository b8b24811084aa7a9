//! Texts, keys and drawings of the router's softmax.

use warplap_core::bucket::Bucket;
use warplap_core::op::Op;
use warplap_core::problem::Problem;

use super::{TopkSoftmax, TopkSoftmaxProblem, slot};

#[test]
fn a_problem_reads_back_what_it_prints() {
    for text in [
        "topk_softmax:rows=4096,n=128,k=8,dtype=bf16,renormalize=true",
        "topk_softmax:rows=1,n=1,k=1,dtype=f32",
        "topk_softmax:rows=7,n=4096,k=64,dtype=f16",
    ] {
        assert_eq!(TopkSoftmax::text(&TopkSoftmax::parse(text).unwrap()), text);
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (fields, field) in [
        ("rows=1,n=8,k=9", "'k'"),
        ("rows=1,n=8,k=0", "'k'"),
        ("rows=1,n=128,k=65", "'k'"),
        ("rows=1,n=8,k=-1", "'k'"),
        ("rows=1,n=4097,k=1", "'n'"),
        ("rows=1,n=0,k=1", "'n'"),
        ("rows=1048576,n=4096,k=1", "'rows'"),
        ("rows=1,n=8,k=1,dtype=f64", "'dtype'"),
        ("rows=1,n=8,k=1,renormalise=true", "did you mean 'renormalize'?"),
        ("rows=1,n=8", "'k'"),
    ] {
        let error = TopkSoftmax::parse(fields).unwrap_err().to_string();
        assert!(error.contains(field), "{fields}: {error}");
    }
}

#[test]
fn rows_are_rounded_and_experts_are_not() {
    let p = TopkSoftmax::parse("rows=1000,n=100,k=6").unwrap();
    assert_eq!(p.representative(&Bucket::PowerOfTwo), TopkSoftmaxProblem { rows: 1024, ..p });
    let renormalized = TopkSoftmaxProblem { renormalize: true, ..p };
    assert_ne!(p.key_fields(&Bucket::Exact), renormalized.key_fields(&Bucket::Exact));
    assert_eq!(p.work().bytes, 4e5 + 8.0 * 6000.0);
}

#[test]
fn rows_are_drawn_with_equals_and_with_hidden_ones_and_nobody_s_row_is_hidden_altogether() {
    for n in [1, 2, 7, 64, 300] {
        for dtype in ["f32", "f16", "bf16"] {
            let p = TopkSoftmax::parse(&format!("rows=40,n={n},k=1,dtype={dtype}")).unwrap();
            let x = TopkSoftmax::draw(&p, &mut fastrand::Rng::with_seed(3))[slot::X].to_f64();
            for (i, row) in x.chunks(n).enumerate() {
                assert!(row.iter().any(|x| x.is_finite()), "{n} {dtype} {i}: {row:?}");
            }
            let equal = |row: &[f64]| (0..n).any(|i| row[..i].contains(&row[i]));
            assert!(n < 64 || (equal(&x[n..2 * n]) && x[2 * n..3 * n].contains(&f64::NEG_INFINITY)), "{n} {dtype}");
        }
    }
}
