//! Edge problems of `norm_grad`: every variant is held to the right answer on them, and the device's right answer to
//! the host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for kind in ["rms", "layer"] {
            for shape in
                ["rows=1,n=2", "rows=3,n=5", "rows=33,n=77", "rows=300,n=129", "rows=1,n=4096", "rows=2,n=10007"]
            {
                for rest in ["", ",weight=false,total=true", ",bias=true,dropout=0.3,total=true,eps=0.5"] {
                    problems.push(format!("norm_grad:{shape},dtype={dtype},kind={kind}{rest}"));
                }
            }
        }
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "norm_grad:rows=1,n=1,dtype=f32",
    "norm_grad:rows=13,n=77,dtype=f16,bias=true,total=true",
    "norm_grad:rows=100,n=768,dtype=f32,kind=layer,bias=true",
    "norm_grad:rows=31,n=1000,dtype=bf16,kind=layer,weight=false,bias=true,dropout=0.3,total=true",
    "norm_grad:rows=9,n=257,dtype=f32,weight=false,eps=0.001,dropout=0.1",
    "norm_grad:rows=700,n=64,dtype=f16,kind=layer",
    "norm_grad:rows=4096,n=4096,dtype=bf16,total=true",
];
