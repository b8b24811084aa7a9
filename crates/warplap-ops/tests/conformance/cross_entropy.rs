//! Cross entropy.

/// The edge problems.
pub(crate) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for shape in ["rows=1,n=1", "rows=3,n=2", "rows=7,n=13", "rows=33,n=77", "rows=300,n=129", "rows=2,n=10007"] {
            for grad in ["", ",grad=true", ",grad=true,kept=true"] {
                for rest in ["", ",reduction=sum,labels=i32", ",smoothing=0.1", ",zloss=0.01,smoothing=0.3,ignore=1"] {
                    problems.push(format!("cross_entropy:{shape},dtype={dtype}{grad}{rest}"));
                }
            }
        }
        problems.push(format!("cross_entropy:rows=3,n=70000,dtype={dtype},grad=true"));
        problems.push(format!("cross_entropy:rows=1000,n=64,dtype={dtype},smoothing=1"));
    }
    problems
}
