//! Problems of decoding whose keys lie in pages, or of which each batch has a number of its own.

const KEYS: [&str; 10] = [
    ",page=16",
    ",page=64,lengths=true",
    ",page=16,lengths=true,causal=true,corner=bottom",
    ",page=256,lengths=true,causal=true",
    ",page=32,lengths=true,window=100,causal=true,corner=bottom",
    ",page=48,lengths=true,alibi=true,corner=bottom",
    ",page=16,pages=5,lengths=true,softcap=9",
    ",page=128,mask=add,over=each",
    ",lengths=true,mask=bool",
    ",lengths=true,causal=true,corner=bottom,window=333",
];
const LENGTHS: [&str; 6] = ["sq=1,sk=4096", "sq=1,sk=1000", "sq=4,sk=777", "sq=2,sk=17", "sq=1,sk=1", "sq=30,sk=2000"];
const HEADS: [&str; 6] = [
    "b=4,h=32,hkv=8,d=128,layout=bshd",
    "h=8,d=64",
    "b=3,h=8,hkv=1,d=128",
    "b=7,h=4,hkv=2,d=80,layout=bshd",
    "b=2,h=4,hkv=4,d=256,dv=192",
    "b=16,h=8,hkv=8,d=64,layout=bshd",
];

/// One part of so many of them, each with its number.
pub(crate) fn problems([part, of]: [u64; 2]) -> Vec<(u64, String)> {
    let mut texts = Vec::new();
    for (i, length) in LENGTHS.iter().enumerate() {
        for (j, keys) in KEYS.iter().enumerate() {
            let (heads, dtype) = (HEADS[(i + j) % 6], ["f16", "bf16"][(i + j) % 2]);
            texts.push(format!("{heads},{length}{keys},dtype={dtype},lse=true"));
        }
    }
    (0..).zip(texts).filter(|(turn, _)| turn % of.max(1) == part).collect()
}
