//! A norm's gradients.

/// The edge problems.
pub(crate) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for kind in ["rms", "layer"] {
            for shape in
                ["rows=1,n=2", "rows=3,n=5", "rows=33,n=77", "rows=300,n=129", "rows=1,n=4096", "rows=2,n=10007"]
            {
                for rest in ["", ",weight=false,total=true", ",bias=true,dropout=0.3,total=true,eps=0.5"] {
                    problems.push(format!("norm_grad:{shape},dtype={dtype},kind={kind}{rest}"));
                }
            }
        }
    }
    problems
}
