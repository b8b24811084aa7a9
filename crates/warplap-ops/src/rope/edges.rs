//! Edge problems of `rope`: every variant is held to the right answer on them, and the device's right answer to the
//! host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for pairs in ["halves", "interleaved"] {
            for shape in [
                "rows=1,h=1,d=2",
                "rows=1,h=40,d=128",
                "rows=7,h=3,d=64",
                "rows=33,h=5,hk=1,d=80",
                "rows=13,h=4,hk=2,d=7,rot=6",
                "rows=20,h=8,hk=2,d=128,rot=32,n=11",
                "rows=300,h=2,hk=1,d=34",
            ] {
                for rest in [
                    "",
                    ",back=true,wide=true",
                    ",bias=true,plain=1,positions=i64",
                    ",inplace=true,table=f32,positions=i32",
                    ",inplace=true,bias=true",
                ] {
                    // Of one head none is left to be plain.
                    if !(shape.contains("h=1,") && rest.contains("plain")) {
                        problems.push(format!("rope:{shape},dtype={dtype},pairs={pairs}{rest}"));
                    }
                }
            }
            let qkv = format!("rope:rows=11,h=6,d=64,dtype={dtype},pairs={pairs},plain=2,ld=400,inplace=true");
            problems.extend([qkv.clone(), format!("{qkv},bias=true,ldt=70,n=3"), format!("{qkv},rot=20,back=true")]);
            let apart = format!("rope:rows=9,h=3,hk=2,d=20,rot=8,dtype={dtype},pairs={pairs},ld=61,ldk=200");
            problems.extend([apart.clone(), format!("{apart},inplace=true,wide=true"), format!("{apart},plain=3")]);
        }
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "rope:rows=1,h=1,d=2,dtype=f32",
    "rope:rows=13,h=4,hk=2,d=80,rot=32,n=5,dtype=f16,wide=true,positions=i32",
    "rope:rows=31,h=3,hk=1,d=64,dtype=bf16,table=f32,pairs=interleaved,back=true",
    "rope:rows=9,h=6,d=48,rot=20,n=40,dtype=f16,pairs=interleaved,plain=2,bias=true,positions=i64,ldt=33",
    "rope:rows=64,h=10,d=128,dtype=bf16,plain=2,bias=true,inplace=true,ld=1400",
    "rope:rows=33,h=2,hk=2,d=64,dtype=f32,inplace=true,ld=150,ldk=160,back=true",
    "rope:rows=4096,h=32,hk=8,d=128,dtype=bf16",
];
