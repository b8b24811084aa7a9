//! Problems of sequences that lie one behind the other.

const SEEN: [&str; 7] = [
    "",
    ",causal=true",
    ",causal=true,corner=bottom",
    ",window=70,causal=true,corner=bottom",
    ",alibi=true,causal=true,corner=bottom",
    ",softcap=9,window=100",
    ",dropout=0.2,causal=true",
];
const TOTALS: [&str; 8] = [
    "b=7,sq=197,tq=700",
    "b=5,sq=64,tq=200",
    "b=3,sq=1000,tq=1500",
    "b=9,sq=127,sk=63,tq=500,tk=300",
    "b=4,sq=65,sk=1000,tq=130,tk=2500",
    "b=1,sq=63,tq=63",
    "b=16,sq=1,sk=300,tq=16,tk=2000",
    "b=30,sq=600,tq=2000",
];
const HEADS: [&str; 5] = [
    "h=4,d=128,layout=bshd",
    "h=8,hkv=2,d=64,layout=bshd",
    "h=2,d=80",
    "h=3,d=101,dv=7,layout=bshd",
    "h=4,hkv=1,d=256,dv=192",
];

/// One part of so many of them, each with its number.
pub(crate) fn problems([part, of]: [u64; 2], more: &str) -> Vec<(u64, String)> {
    let mut texts = Vec::new();
    for (i, totals) in TOTALS.iter().enumerate() {
        for (j, seen) in SEEN.iter().enumerate() {
            let (heads, dtype) = (HEADS[(i + j) % 5], ["f16", "bf16"][(i + j) % 2]);
            texts.push(format!("{heads},{totals}{seen},dtype={dtype}{more}"));
        }
    }
    (0..).zip(texts).filter(|(turn, _)| turn % of.max(1) == part).collect()
}
