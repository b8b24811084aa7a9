//! Edge problems of `softmax`: every variant is held to the right answer on them, and the device's right answer to the
//! host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for shape in [
            "rows=1,n=1",
            "rows=3,n=2",
            "rows=7,n=13",
            "rows=5,n=64",
            "rows=33,n=77",
            "rows=1,n=4096",
            "rows=300,n=129",
            "rows=2,n=10007",
        ] {
            for rest in ["", ",scale=0.125", ",mask=1", ",scale=-3,mask=1,each=1"] {
                problems.push(format!("softmax:{shape},dtype={dtype}{rest}"));
            }
        }
        problems.push(format!("softmax:rows=24,n=40,dtype={dtype},mask=24"));
        problems.push(format!("softmax:rows=24,n=40,dtype={dtype},mask=2,each=12,scale=0.3"));
        problems.push(format!("softmax:rows=24,n=40,dtype={dtype},mask=6"));
        problems.push(format!("softmax:rows=2,n=70000,dtype={dtype},mask=2"));
        // Large enough that stores past the caches are raced.
        problems.push(format!("softmax:rows=520,n=1024,dtype={dtype},mask=520"));
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "softmax:rows=1,n=1,dtype=f32",
    "softmax:rows=13,n=77,dtype=f16,scale=-0.3",
    "softmax:rows=24,n=40,dtype=bf16,mask=2,each=12,scale=0.125",
    "softmax:rows=100,n=768,dtype=f32,mask=100",
    "softmax:rows=1024,n=4096,dtype=bf16",
];
