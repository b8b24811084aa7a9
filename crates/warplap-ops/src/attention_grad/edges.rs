//! Edge problems of `attention_grad`: every variant is held to the right answer on them, and the device's right answer
//! to the host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for shape in [
            "h=1,sq=1,d=1",
            "h=2,sq=1,sk=77,d=64",
            "b=2,h=4,hkv=2,sq=3,sk=130,d=40,dv=24",
            "h=1,sq=17,sk=33,d=19,dv=7",
            "b=2,h=1,sq=70,sk=9,d=16",
            "h=2,hkv=1,sq=65,sk=150,d=33,dv=65",
            "h=1,sq=5,sk=3,d=260,dv=200",
        ] {
            for flags in ["", ",causal=true", ",mask=add", ",causal=true,mask=add,layout=bshd"] {
                problems.push(format!("attention_grad:{shape},dtype={dtype}{flags}"));
            }
        }
        for rest in [
            "b=2,h=4,hkv=2,sq=33,sk=70,d=16,window=5,corner=bottom",
            "h=2,sq=70,sk=33,d=40,causal=true,corner=bottom",
            "b=2,h=4,sq=40,d=16,softcap=2,causal=true,window=9",
            "b=2,h=4,hkv=2,sq=40,sk=70,d=24,dv=8,alibi=true,mask=add,over=heads,layout=bshd",
            "h=8,hkv=2,sq=2,sk=700,d=64,alibi=true,causal=true,corner=bottom,window=300",
            "b=2,h=2,sq=20,sk=30,d=8,mask=add,over=each,alibi=true,window=4",
            "b=2,h=2,sq=90,sk=30,d=8,mask=add,over=batches,softcap=20,window=4",
            "b=2,h=4,hkv=2,sq=40,sk=75,d=8,mask=bool,over=each,dropout=0.3",
            "b=2,h=2,sq=70,d=16,mask=bool,causal=true,layout=bshd",
            "b=2,h=4,hkv=2,sq=100,sk=130,d=16,mask=tiles,tile=32,over=each,alibi=true",
            "b=2,h=2,sq=70,d=8,mask=tiles,tile=64,live=75,causal=true,layout=bshd,dropout=0.3",
            "b=2,h=3,sq=70,d=16,dropout=0.9,window=20",
            "b=5,h=4,hkv=2,sq=127,d=32,tq=300,layout=bshd",
            "b=5,h=4,hkv=2,sq=65,d=16,tq=200,layout=bshd,causal=true",
            "b=4,h=2,sq=65,sk=197,d=16,dv=8,tq=120,tk=300,causal=true,corner=bottom",
            "b=6,h=4,hkv=1,sq=64,sk=63,d=40,tq=90,tk=130,window=9,alibi=true,causal=true",
            "b=3,h=2,sq=70,sk=40,d=8,tq=90,tk=75,softcap=2,mask=add,over=each,dropout=0.3",
            "b=9,h=1,sq=1,d=8,tq=1",
        ] {
            problems.push(format!("attention_grad:{rest},dtype={dtype}"));
        }
        problems.push(format!("attention_grad:h=2,sq=600,sk=530,d=32,dtype={dtype},causal=true"));
        problems.push(format!("attention_grad:h=1,sq=9,sk=20,d=1024,dv=1,dtype={dtype},scale=-0.01"));
        problems.push(format!("attention_grad:h=1,sq=130,sk=257,d=64,dtype={dtype},scale=0.9,causal=true"));
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "attention_grad:b=2,h=4,hkv=2,sq=100,sk=130,d=40,dtype=bf16,mask=tiles,tile=32,over=each",
    "attention_grad:b=2,h=2,sq=170,d=16,dtype=f32,mask=tiles,tile=64,live=75,causal=true,over=heads,alibi=true",
    "attention_grad:h=1,sq=1,d=1,dtype=f32",
    "attention_grad:b=2,h=3,sq=65,sk=33,d=17,dtype=f32",
    "attention_grad:b=5,h=4,hkv=2,sq=197,d=64,dtype=bf16,tq=500,layout=bshd,causal=true",
    "attention_grad:b=6,h=2,sq=65,sk=300,d=40,dv=24,dtype=f16,tq=200,tk=800,causal=true,corner=bottom,alibi=true",
    "attention_grad:b=3,h=2,sq=70,sk=40,d=8,dtype=f32,tq=90,tk=75,softcap=2,mask=add,over=each,dropout=0.3",
    "attention_grad:b=2,h=4,hkv=2,sq=70,sk=130,d=40,dv=24,dtype=f16",
    "attention_grad:h=6,hkv=1,sq=31,sk=97,d=8,dv=200,dtype=bf16",
    "attention_grad:h=2,sq=300,sk=50,d=32,dtype=bf16,causal=true",
    "attention_grad:b=2,h=2,sq=50,sk=300,d=150,dtype=f32,causal=true",
    "attention_grad:h=2,sq=100,sk=140,d=16,dtype=f16,mask=add",
    "attention_grad:b=3,h=4,hkv=2,sq=90,sk=77,d=48,dtype=bf16,causal=true,mask=add,scale=-0.4,layout=bshd",
    "attention_grad:b=1,h=4,sq=1024,d=128,dtype=bf16,causal=true",
    "attention_grad:b=2,h=4,hkv=2,sq=70,sk=130,d=40,window=9,corner=bottom,alibi=true,dtype=f16",
    "attention_grad:b=2,h=4,sq=130,sk=70,d=24,causal=true,corner=bottom,mask=add,over=heads,dtype=f32",
    "attention_grad:b=2,h=4,sq=70,sk=90,d=24,softcap=3,window=30,causal=true,mask=add,over=each,dtype=bf16",
];
