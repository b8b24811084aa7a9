//! Edge problems of `qgemm`: every variant is held to the right answer on them, and the device's right answer to the
//! host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
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

/// What the device's right answer is held to the host's on.
/// Sums of signed bytes are exact: nothing is allowed beside them.
pub(super) const PROOFS: &[&str] = &[
    "qgemm:m=64,n=64,k=64,out=bf16,scale=tensor",
    "qgemm:m=1,n=1,k=1,out=f32,scale=none",
    "qgemm:m=77,n=131,k=259,out=f16,scale=row",
    "qgemm:m=65,n=130,k=33,out=bf16,scale=row,fast=true",
    "qgemm:m=33,n=300,k=700,out=f32,scale=block",
    "qgemm:m=129,n=129,k=128,out=bf16,scale=block",
    "qgemm:m=1024,n=1024,k=2048,out=bf16,scale=block",
];
