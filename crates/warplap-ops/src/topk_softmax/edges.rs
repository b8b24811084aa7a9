//! Edge problems of `topk_softmax`: every variant is held to the right answer on them, and the device's right answer to
//! the host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type, all of a row and one of it.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for shape in [
            "rows=1,n=1,k=1",
            "rows=3,n=2,k=2",
            "rows=9,n=8,k=2",
            "rows=3000,n=3,k=1",
            "rows=7,n=13,k=13",
            "rows=33,n=64,k=64",
            "rows=17,n=77,k=1",
            "rows=70,n=128,k=8",
            "rows=5,n=300,k=33",
            "rows=6,n=1000,k=10",
            "rows=5,n=1023,k=64",
            "rows=4,n=4095,k=63",
            "rows=300,n=256,k=6",
            "rows=4,n=4096,k=8",
        ] {
            for rest in ["", ",renormalize=true"] {
                problems.push(format!("topk_softmax:{shape},dtype={dtype}{rest}"));
            }
        }
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "topk_softmax:rows=1,n=1,k=1,dtype=f32",
    "topk_softmax:rows=13,n=77,k=9,dtype=f16",
    "topk_softmax:rows=24,n=40,k=40,dtype=bf16,renormalize=true",
    "topk_softmax:rows=100,n=768,k=64,dtype=f32,renormalize=true",
    "topk_softmax:rows=4096,n=256,k=8,dtype=bf16",
];
