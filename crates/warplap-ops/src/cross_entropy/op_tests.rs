//! Texts and keys of cross entropies.

use warplap_core::bucket::Bucket;
use warplap_core::op::Op;
use warplap_core::problem::Problem;

use super::CrossEntropy;

#[test]
fn a_problem_reads_back_what_it_prints() {
    for text in [
        "cross_entropy:rows=4096,n=128256,dtype=bf16",
        "cross_entropy:rows=9,n=128,dtype=bf16,grad=true,kept=true,smoothing=0.1",
        "cross_entropy:rows=24,n=77,dtype=f16,labels=i32,grad=true,reduction=sum,ignore=0,smoothing=0.1,zloss=0.0001",
    ] {
        assert_eq!(CrossEntropy::text(&CrossEntropy::parse(text).unwrap()), text);
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (fields, field) in [
        ("rows=1,n=1,smoothing=1.5", "'smoothing'"),
        ("rows=1,n=1,kept=true", "'kept'"),
        ("rows=1,n=1,zloss=nan", "'zloss'"),
        ("rows=4,n=1,ignore=0", "'ignore'"),
        ("rows=4,n=1,labels=f32", "'labels'"),
        ("rows=4,n=1,reduction=none", "'reduction'"),
        ("rows=1,n=1,dtype=f64", "'dtype'"),
        ("rows=1048576,n=4096", "'rows'"),
        ("rows=1,n=1,smoothin=1", "did you mean 'smoothing'?"),
    ] {
        let error = CrossEntropy::parse(fields).unwrap_err().to_string();
        assert!(error.contains(field), "{fields}: {error}");
    }
}

#[test]
fn that_there_is_a_share_is_in_the_key_and_how_large_it_is_is_not() {
    let key = |text: &str| CrossEntropy::parse(text).unwrap().key_fields(&Bucket::PowerOfTwo);
    assert_eq!(key("rows=1000,n=9,smoothing=0.1"), key("rows=1024,n=9,smoothing=0.2,ignore=3"));
    assert_ne!(key("rows=1000,n=9,smoothing=0.1"), key("rows=1000,n=9"));
    let p = CrossEntropy::parse("rows=10,n=100,dtype=f16,grad=true").unwrap();
    assert_eq!(p.work().bytes, 4000.0 + 160.0);
}
