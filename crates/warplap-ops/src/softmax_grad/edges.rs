//! Edge problems of `softmax_grad`: every variant is held to the right answer on them, and the device's right answer to
//! the host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for shape in [
            "rows=1,n=1",
            "rows=3,n=2",
            "rows=7,n=13",
            "rows=33,n=77",
            "rows=1,n=4096",
            "rows=300,n=129",
            "rows=2,n=70000",
            "rows=520,n=1024",
        ] {
            for rest in ["", ",scale=-0.125"] {
                problems.push(format!("softmax_grad:{shape},dtype={dtype}{rest}"));
            }
        }
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "softmax_grad:rows=1,n=1,dtype=f32",
    "softmax_grad:rows=13,n=77,dtype=f16,scale=-0.3",
    "softmax_grad:rows=1024,n=4096,dtype=bf16",
];
