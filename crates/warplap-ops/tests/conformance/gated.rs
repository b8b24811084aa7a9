//! Activations, joined with another tensor or alone.

/// The edge problems.
pub(crate) fn problems() -> Vec<String> {
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
