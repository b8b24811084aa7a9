//! Texts, keys and work of norms.

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::op::Op;
use warplap_core::problem::Problem;
use warplap_core::roofline::Work;

use super::{Norm, NormProblem};

#[test]
fn a_problem_reads_back_what_it_prints() {
    for text in [
        "norm:rows=4096,n=4096,dtype=bf16,kind=rms",
        "norm:rows=1,n=77,dtype=f16,kind=layer,residual=true,weight=false,bias=true,eps=0.000001",
        "norm:rows=9,n=7,dtype=f32,kind=layer,residual=true,before=true,dropout=0.1,sum=false",
        "norm:rows=9,n=7,dtype=bf16,kind=rms,quant=f8e4m3",
        "norm:rows=9,n=7,dtype=f16,kind=rms,residual=true,quant=i8,eps=0.001",
    ] {
        assert_eq!(Norm::text(&Norm::parse(text).unwrap()), text);
    }
    let whole = "rows=4096,n=4096,dtype=bf16,kind=rms,residual=true,bias=false,eps=1e-5";
    let p = Norm::parse(whole).unwrap();
    assert_eq!(p, NormProblem { residual: true, ..NormProblem::new(4096, 4096, DType::Bf16) });
    assert_eq!(Norm::parse(&Norm::text(&p)).unwrap(), p);
}

#[test]
fn what_is_wrong_is_named() {
    for (fields, field) in [
        ("rows=1,n=1,eps=0", "'eps'"),
        ("rows=1,n=1,eps=nan", "'eps'"),
        ("rows=1,n=1,kind=batch", "'kind'"),
        ("rows=1,n=1,dropout=1", "'dropout'"),
        ("rows=1,n=1,dtype=f64", "'dtype'"),
        ("rows=1,n=1,quant=fp8", "'quant'"),
        ("rows=1048576,n=4096", "'rows'"),
        ("rows=1,n=1,residuel=true", "did you mean 'residual'?"),
    ] {
        let error = Norm::parse(fields).unwrap_err().to_string();
        assert!(error.contains(field), "{fields}: {error}");
    }
}

#[test]
fn rows_are_rounded_and_their_length_is_not() {
    let p = Norm::parse("rows=1000,n=1000,eps=1e-6").unwrap();
    let other = p.with_eps(1e-3).unwrap();
    assert_eq!(p.representative(&Bucket::PowerOfTwo), NormProblem { rows: 1024, ..p });
    assert_eq!(p.key_fields(&Bucket::PowerOfTwo), other.key_fields(&Bucket::PowerOfTwo));
    assert_ne!(p, other);
}

#[test]
fn bytes_are_those_read_and_written_once() {
    let p = Norm::parse("rows=10,n=100,dtype=f16,residual=true,bias=true").unwrap();
    assert_eq!(p.work(), Work { flops: 4000.0, bytes: 2.0 * (4000.0 + 200.0) });
    let p = Norm::parse("rows=10,n=100,dtype=f16,residual=true,bias=true,quant=i8").unwrap();
    assert_eq!(p.work().bytes, 2.0 * (3000.0 + 200.0) + 1000.0 + 40.0);
}
