//! Sampled products.

/// The edge problems.
pub(crate) fn problems() -> Vec<String> {
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
