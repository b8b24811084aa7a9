//! Edge problems of `sampled`: every variant is held to the right answer on them, and the device's right answer to the
//! host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for shape in [
            "m=8,k=8,n=1,bs=8,density=1",
            "m=64,k=128,n=17,bs=32,density=0",
            "m=96,k=192,n=33,bs=24,density=0.5",
            "m=128,k=64,n=100,bs=16,density=0.5,imbalance=2",
            "m=256,k=256,n=50,bs=128,density=0.5",
        ] {
            for layout in ["", ",b=col", ",g=col", ",b=col,g=col"] {
                problems.push(format!("sampled:{shape},dtype={dtype}{layout}"));
            }
        }
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "sampled:m=64,k=64,n=64,bs=16,density=0.5,dtype=f16",
    "sampled:m=48,k=32,n=5,bs=16,density=0.5,imbalance=1.5,b=col,dtype=bf16",
    "sampled:m=16,k=24,n=1,bs=8,density=1,g=col,dtype=f32",
    "sampled:m=320,k=448,n=264,bs=64,density=0.3,g=col,b=col,dtype=f16",
    "sampled:m=256,k=384,n=71,bs=128,density=0.4,dtype=f32",
    "sampled:m=2048,k=2048,n=1024,bs=32,density=0.125,dtype=bf16",
];
