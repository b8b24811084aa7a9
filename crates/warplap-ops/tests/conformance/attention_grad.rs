//! Attention's gradients.

/// The edge problems.
pub(crate) fn problems() -> Vec<String> {
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
