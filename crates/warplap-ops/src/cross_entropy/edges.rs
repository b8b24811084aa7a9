//! Edge problems of `cross_entropy`: every variant is held to the right answer on them, and the device's right answer
//! to the host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for shape in ["rows=1,n=1", "rows=3,n=2", "rows=7,n=13", "rows=33,n=77", "rows=300,n=129", "rows=2,n=10007"] {
            for grad in ["", ",grad=true", ",grad=true,kept=true"] {
                for rest in ["", ",reduction=sum,labels=i32", ",smoothing=0.1", ",zloss=0.01,smoothing=0.3,ignore=1"] {
                    problems.push(format!("cross_entropy:{shape},dtype={dtype}{grad}{rest}"));
                }
            }
        }
        problems.push(format!("cross_entropy:rows=3,n=70000,dtype={dtype},grad=true"));
        problems.push(format!("cross_entropy:rows=1000,n=64,dtype={dtype},smoothing=1"));
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "cross_entropy:rows=1,n=1,dtype=f32,grad=true",
    "cross_entropy:rows=13,n=77,dtype=f16,labels=i32,grad=true,smoothing=0.1,zloss=0.01",
    "cross_entropy:rows=100,n=1000,dtype=f32,reduction=sum,ignore=3",
    "cross_entropy:rows=31,n=300,dtype=bf16,grad=true,reduction=sum,smoothing=0.2",
    "cross_entropy:rows=64,n=32000,dtype=bf16,grad=true,zloss=0.0001",
    "cross_entropy:rows=64,n=32000,dtype=bf16,grad=true,kept=true",
];
