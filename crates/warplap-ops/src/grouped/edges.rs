//! Edge problems of `grouped`: every variant is held to the right answer on them, and the device's right answer to the
//! host's.

/// Where kernels break: sizes of one, sizes that no vector divides, experts without rows, rows of nobody, every type
/// and layout.
pub(super) fn problems() -> Vec<String> {
    let shapes = [
        "rows=1,n=1,k=1,experts=1",
        "rows=1,n=37,k=19,experts=3",
        "rows=5,n=1,k=33,experts=4",
        "rows=40,n=33,k=1,experts=7",
        "rows=16,n=100,k=45,experts=40",
        "rows=130,n=97,k=65,experts=5",
        "rows=90,n=300,k=520,experts=6",
        "rows=333,n=83,k=1100,experts=3",
        "rows=64,n=16,k=24,experts=1024",
    ];
    let rests = ["", ",spread=even", ",spread=one", ",tail=1", ",spread=even,tail=1"];
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for (i, shape) in shapes.iter().enumerate() {
            for (j, layout) in ["row", "col"].into_iter().enumerate() {
                for rest in [rests[0], rests[1 + (i + 2 * j) % 4]] {
                    problems.push(format!("grouped:{shape},dtype={dtype},w={layout}{rest}"));
                }
            }
        }
    }
    // Nobody has a row.
    problems.push("grouped:rows=5,n=9,k=7,experts=3,dtype=f32,w=row,tail=5".into());
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "grouped:rows=1,n=1,k=1,experts=1,dtype=f32,w=row",
    "grouped:rows=130,n=97,k=65,experts=5,dtype=f16,w=row",
    "grouped:rows=130,n=97,k=65,experts=5,dtype=bf16,w=col,spread=even,tail=9",
    "grouped:rows=64,n=16,k=24,experts=1024,dtype=f16,w=col",
    "grouped:rows=300,n=256,k=512,experts=8,dtype=f32,w=row,spread=one",
    "grouped:rows=2048,n=1536,k=2048,experts=32,dtype=bf16,w=col",
];
