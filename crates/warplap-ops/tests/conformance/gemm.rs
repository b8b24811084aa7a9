//! Dense products.

use warplap_ops::gemm;

use crate::conform;

#[test]
fn every_gemm_variant_is_right_on_edge_problems() {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for shape in
            ["m=1,n=1,k=1", "m=1,n=37,k=19", "m=29,n=1,k=33", "m=7,n=13,k=5", "m=64,n=64,k=64", "m=65,n=97,k=130"]
        {
            for layout in ["", ",a=col", ",b=col", ",a=col,b=col"] {
                problems.push(format!("gemm:{shape},dtype={dtype}{layout}"));
            }
        }
        problems.push(format!("gemm:m=33,n=40,k=70,dtype={dtype},lda=77,ldb=48,ldc=43,align=4"));
        problems.push(format!("gemm:m=3,n=300,k=520,dtype={dtype}"));
        problems.push(format!("gemm:m=260,n=5,k=1030,dtype={dtype}"));
    }
    conform(&gemm::cpu::catalog(), &problems.iter().map(String::as_str).collect::<Vec<_>>());
}
