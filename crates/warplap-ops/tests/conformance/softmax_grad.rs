//! Softmax's gradients.

/// The edge problems.
pub(crate) fn problems() -> Vec<String> {
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
