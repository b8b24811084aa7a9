//! Edge problems of `bsr`: every variant is held to the right answer on them, and the device's right answer to the
//! host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for shape in [
            "m=8,k=8,n=1,bs=8,density=1",
            "m=64,k=64,n=1,bs=8,density=0.3",
            "m=128,k=64,n=5,bs=16,density=0.5,imbalance=2",
            "m=96,k=192,n=8,bs=24,density=0.5",
            "m=64,k=128,n=17,bs=32,density=0",
            "m=64,k=128,n=33,bs=32,density=0.25",
            "m=64,k=64,n=96,bs=64,density=1",
            "m=160,k=80,n=131,bs=40,density=0.4",
            "m=256,k=256,n=50,bs=128,density=0.5",
            "m=512,k=256,n=48,bs=16,density=0.05,imbalance=6,pattern=powerlaw",
            "m=256,k=256,n=100,bs=16,density=0.3,pattern=causal",
            "m=256,k=256,n=31,bs=32,density=0.3,pattern=banded",
            "m=16,k=1024,n=40,bs=16,density=0.6",
            "m=96,k=64,n=21,bs=24,bc=16,density=0.5",
            "m=64,k=256,n=48,bs=16,bc=64,density=0.3,imbalance=2",
        ] {
            for (i, layout) in ["", ",b=col"].into_iter().enumerate() {
                problems.push(format!("bsr:{shape},dtype={dtype}{layout}"));
                problems.push(format!("bsr:{shape},dtype={dtype}{layout},c=col"));
                let scales = ["beta=1,turned=true", "alpha=-0.75,beta=2.5", "alpha=1.5,turned=true", "bias=true"];
                let scale = scales[(i + shape.len()) % 4];
                problems.push(format!("bsr:{shape},dtype={dtype}{layout},{scale}"));
                problems.push(format!("bsr:{shape},dtype={dtype}{layout},c=col,{scale}"));
            }
        }
    }
    for shape in [
        "m=8,k=8,n=1,bs=8,density=1",
        "m=128,k=128,n=17,bs=64,density=0",
        "m=256,k=256,n=50,bs=128,density=0.5",
        "m=192,k=320,n=33,bs=64,density=0.4,imbalance=2",
        "m=96,k=64,n=21,bs=24,bc=16,density=0.5",
    ] {
        for rest in ["", ",c=col,alpha=0.25", ",alpha=1.5,beta=-0.5", ",beta=2,turned=true", ",bias=true"] {
            problems.push(format!("bsr:{shape},dtype=f8e4m3{rest}"));
        }
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "bsr:m=64,k=64,n=64,bs=16,density=0.5,dtype=f16",
    "bsr:m=48,k=32,n=5,bs=16,density=0.5,imbalance=1.5,b=col,dtype=bf16",
    "bsr:m=16,k=16,n=3,bs=8,density=0,dtype=f16",
    "bsr:m=320,k=448,n=264,bs=64,density=0.3,dtype=bf16",
    "bsr:m=256,k=384,n=71,bs=32,density=0.4,dtype=f32,alpha=-0.5,beta=2,turned=true",
    "bsr:m=384,k=384,n=40,bs=128,density=0.4,dtype=f16,alpha=3",
    "bsr:m=512,k=512,n=512,bs=16,density=0.1,dtype=f32,tf32=true,beta=1",
    "bsr:m=256,k=384,n=72,bs=32,density=0.4,dtype=bf16,c=col,alpha=-0.5,beta=2,bias=true",
    "bsr:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f16",
    "bsr:m=320,k=448,n=71,bs=64,density=0.3,dtype=f8e4m3,alpha=0.25,beta=2,turned=true",
    "bsr:m=384,k=384,n=40,bs=128,density=0.4,dtype=f8e4m3,c=col,bias=true",
];
