//! Products of 8-bit numbers.

/// The edge problems.
pub(crate) fn problems() -> Vec<String> {
    let shapes =
        ["m=1,n=1,k=1", "m=3,n=5,k=7", "m=17,n=31,k=64", "m=33,n=130,k=129", "m=64,n=48,k=300", "m=1,n=100,k=513"];
    let mut problems = Vec::new();
    for shape in shapes {
        problems.push(format!("qgemm:{shape},dtype=i8"));
        for scale in ["none", "tensor", "row", "block"] {
            problems.extend(["bf16", "f16", "f32"].map(|out| format!("qgemm:{shape},out={out},scale={scale}")));
        }
        problems.push(format!("qgemm:{shape},scale=row,fast=true"));
    }
    // Several blocks of every kind of cut.
    problems.extend(["m=200,n=300,k=700", "m=70,n=1100,k=90"].map(|shape| format!("qgemm:{shape},dtype=i8")));
    problems
}
