//! Texts of softmax's gradients.

use warplap_core::op::Op;
use warplap_core::problem::Problem;

use super::SoftmaxGrad;

#[test]
fn a_problem_reads_back_what_it_prints_and_has_no_mask() {
    let text = "softmax_grad:rows=24,n=77,dtype=f16,scale=0.125";
    let p = SoftmaxGrad::parse(text).unwrap();
    assert_eq!(SoftmaxGrad::text(&p), text);
    assert_eq!(p.work().bytes, 2.0 * 3.0 * 24.0 * 77.0);
    assert!(SoftmaxGrad::parse("rows=2,n=2,mask=1").unwrap_err().to_string().contains("mask"));
}
