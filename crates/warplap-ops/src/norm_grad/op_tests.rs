//! Texts of a norm's gradients.

use warplap_core::op::Op;
use warplap_core::problem::Problem;

use super::NormGrad;

#[test]
fn a_problem_reads_back_what_it_prints_and_has_no_residual() {
    let text = "norm_grad:rows=24,n=77,dtype=f16,kind=layer,weight=false,bias=true,dropout=0.1,total=true";
    let p = NormGrad::parse(text).unwrap();
    assert_eq!(NormGrad::text(&p), text);
    assert_eq!(p.work().bytes, 2.0 * (5.0 * 24.0 * 77.0 + 77.0));
    assert!(NormGrad::parse("rows=2,n=2,residual=true").unwrap_err().to_string().contains("residual"));
}
