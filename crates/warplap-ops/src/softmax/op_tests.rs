//! Texts and keys of softmaxes.

use warplap_core::bucket::Bucket;
use warplap_core::op::Op;
use warplap_core::problem::Problem;

use super::{Softmax, SoftmaxProblem};

#[test]
fn a_problem_reads_back_what_it_prints() {
    for text in [
        "softmax:rows=4096,n=4096,dtype=bf16",
        "softmax:rows=24,n=77,dtype=f16,scale=0.125,mask=2,each=12",
        "softmax:rows=24,n=77,dtype=f32,mask=6",
    ] {
        assert_eq!(Softmax::text(&Softmax::parse(text).unwrap()), text);
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (fields, field) in [
        ("rows=1,n=1,scale=inf", "'scale'"),
        ("rows=1,n=1,scale=nan", "'scale'"),
        ("rows=4,n=1,mask=5", "'mask'"),
        ("rows=4,n=1,mask=2,each=0", "'each'"),
        ("rows=4,n=1,each=2", "'each'"),
        ("rows=1,n=1,dtype=f64", "'dtype'"),
        ("rows=1048576,n=4096", "'rows'"),
        ("rows=1,n=1,skale=1", "did you mean 'scale'?"),
    ] {
        let error = Softmax::parse(fields).unwrap_err().to_string();
        assert!(error.contains(field), "{fields}: {error}");
    }
}

#[test]
fn a_batch_s_mask_is_shared_by_heads_and_a_causal_one_by_batches() {
    // Two batches, three heads, four queries: one row of the mask a batch, then four rows for everybody.
    let of = |text: &str| {
        let p = Softmax::parse(text).unwrap();
        (0..24).map(|row| p.mask_row(row)).collect::<Vec<_>>()
    };
    assert_eq!(of("rows=24,n=1,mask=2,each=12"), [[0; 12], [1; 12]].concat());
    assert_eq!(of("rows=24,n=1,mask=4"), [0, 1, 2, 3].repeat(6));
}

#[test]
fn rows_are_rounded_and_their_length_is_not() {
    let p = Softmax::parse("rows=1000,n=1000,scale=0.5,mask=1000").unwrap();
    let other = p.with_scale(2.0).unwrap();
    assert_eq!(p.representative(&Bucket::PowerOfTwo), SoftmaxProblem { rows: 1024, mask: 1024, ..p });
    assert_eq!(p.key_fields(&Bucket::PowerOfTwo), other.key_fields(&Bucket::PowerOfTwo));
    assert_eq!(p.work().bytes, 3.0 * 4e6);
}
