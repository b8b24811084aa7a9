//! Edge problems of `gated`: every variant is held to the right answer on them, and the device's right answer to the
//! host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let acts = ["none", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"];
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for act in acts {
            for join in ["mul", "add", "none"] {
                problems.push(format!("gated:rows=7,n=77,dtype={dtype},act={act},join={join}"));
            }
        }
        let shapes = ["rows=1,n=1", "rows=3,n=2", "rows=1,n=4096", "rows=33,n=64", "rows=2,n=40007", "rows=300,n=129"];
        let joins = ["", ",join=add", ",join=none", ",lda=50000", ",ldb=50001,join=add", ",join=none,lda=40008"];
        for (i, (shape, join)) in shapes.iter().flat_map(|shape| joins.map(|join| (shape, join))).enumerate() {
            problems.push(format!("gated:{shape},dtype={dtype},act={}{join}", acts[i % 7]));
        }
        // Halves of one tensor.
        problems.push(format!("gated:rows=9,n=520,dtype={dtype},act=silu,lda=1040,ldb=1040"));
        // Large enough that stores past the caches are raced.
        problems.push(format!("gated:rows=520,n=1024,dtype={dtype},act=gelu"));
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "gated:rows=1,n=1,dtype=f32",
    "gated:rows=13,n=77,dtype=f16,act=gelu,join=add,lda=80",
    "gated:rows=31,n=520,dtype=bf16,act=gelu_tanh,lda=1040,ldb=1040",
    "gated:rows=100,n=768,dtype=f32,act=tanh,join=none",
    "gated:rows=100,n=768,dtype=f16,act=sigmoid",
    "gated:rows=9,n=36,dtype=bf16,act=relu,ldb=100",
    "gated:rows=64,n=1024,dtype=f32,act=none,join=add",
    "gated:rows=4096,n=14336,dtype=bf16,act=silu",
];
