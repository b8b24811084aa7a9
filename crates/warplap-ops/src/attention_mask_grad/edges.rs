//! Edge problems of `attention_mask_grad`: every variant is held to the right answer on them, and the device's right
//! answer to the host's.

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
            "b=3,h=2,hkv=1,sq=65,sk=150,d=33,dv=65,layout=bshd",
            "h=1,sq=5,sk=3,d=260,dv=200",
        ] {
            for over in ["all", "heads", "batches", "each"] {
                problems.push(format!("attention_mask_grad:{shape},mask=add,over={over},dtype={dtype}"));
            }
        }
        for rest in [
            "b=2,h=4,hkv=2,sq=33,sk=70,d=16,window=5,corner=bottom",
            "h=2,sq=70,sk=33,d=40,causal=true,corner=bottom",
            "h=2,sq=33,sk=700,d=40,causal=true",
            "h=2,sq=700,sk=1100,d=8,causal=true,window=100",
            "b=2,h=4,sq=40,d=16,softcap=2,causal=true,window=9,over=heads",
            "b=2,h=4,hkv=2,sq=40,sk=70,d=24,dv=8,alibi=true,over=heads,layout=bshd",
            "h=8,hkv=2,sq=2,sk=700,d=64,alibi=true,causal=true,corner=bottom,window=300",
            "b=2,h=2,sq=90,sk=30,d=8,over=batches,softcap=20,window=4",
            "b=2,h=4,hkv=2,sq=40,sk=75,d=8,over=each,dropout=0.3",
            "b=2,h=3,sq=70,d=16,dropout=0.9,window=20",
            "h=1,sq=9,sk=20,d=1024,dv=1,scale=-0.01",
            "h=1,sq=130,sk=257,d=64,scale=0.9,causal=true",
            "b=5,h=7,sq=200,sk=530,d=32",
        ] {
            problems.push(format!("attention_mask_grad:{rest},mask=add,dtype={dtype}"));
        }
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "attention_mask_grad:h=1,sq=1,d=1,dtype=f32,mask=add",
    "attention_mask_grad:b=2,h=4,hkv=2,sq=70,sk=130,d=40,dv=24,dtype=f16,mask=add,over=heads",
    "attention_mask_grad:b=3,h=4,hkv=2,sq=90,sk=77,d=48,dtype=bf16,causal=true,mask=add,scale=-0.4,layout=bshd",
    "attention_mask_grad:b=2,h=4,sq=130,sk=70,d=24,causal=true,corner=bottom,mask=add,over=batches,dtype=f32,alibi=true",
    "attention_mask_grad:b=2,h=4,sq=70,sk=90,d=24,softcap=3,window=30,mask=add,over=each,dtype=bf16,dropout=0.3",
    "attention_mask_grad:b=2,h=4,sq=512,d=128,dtype=bf16,mask=add",
];
