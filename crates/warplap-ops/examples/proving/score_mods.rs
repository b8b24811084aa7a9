//! Problems whose scores are bent, for both passes of attention: windows, both corners, soft caps, distances, masks of
//! heads and batches and weights that are dropped, alone and together.

const FLAGS: [&str; 27] = [
    ",window=20",
    ",window=64,causal=true",
    ",causal=true,corner=bottom",
    ",window=100,corner=bottom",
    ",window=33,causal=true,corner=bottom",
    ",softcap=3",
    ",softcap=30,causal=true",
    ",alibi=true",
    ",alibi=true,causal=true,corner=bottom",
    ",alibi=true,causal=true,window=77",
    ",mask=add,over=heads",
    ",mask=add,over=batches,causal=true",
    ",mask=add,over=each,window=50",
    ",mask=add,over=heads,alibi=true,softcap=8",
    ",alibi=true,scale=-0.2",
    ",softcap=5,mask=add,window=90,causal=true",
    ",mask=bool,over=batches",
    ",mask=bool,over=heads,causal=true",
    ",dropout=0.1",
    ",dropout=0.5,causal=true",
    ",mask=bool,over=each,dropout=0.2,window=70",
    ",mask=tiles,tile=128,live=50",
    ",mask=tiles,tile=128,live=75,over=each,causal=true,corner=bottom",
    ",mask=tiles,tile=64,live=35,over=heads",
    ",mask=tiles,tile=64,live=75,over=heads,alibi=true,causal=true",
    ",mask=tiles,tile=32,live=50,over=batches,dropout=0.2",
    ",mask=tiles,tile=256,live=75,softcap=5,window=200,over=each",
];
const LENGTHS: [&str; 7] =
    ["sq=64", "sq=197", "sq=300,sk=517", "sq=517,sk=304", "sq=1,sk=1000", "sq=127,sk=65", "sq=1000"];
const HEADS: [&str; 4] = ["b=2,h=4,hkv=2,d=64", "b=2,h=3,d=128", "h=8,hkv=2,d=80,layout=bshd", "b=2,h=2,d=256,dv=192"];

/// One part of so many of them, each with its number; `rest` is said of all.
pub(crate) fn problems([part, of]: [u64; 2], rest: &str) -> Vec<(u64, String)> {
    let mut texts = Vec::new();
    for (i, length) in LENGTHS.iter().enumerate() {
        for (j, flag) in FLAGS.iter().enumerate() {
            let (heads, dtype) = (HEADS[(i + j / 2) % 4], ["f16", "bf16"][(i + j) % 2]);
            texts.push(format!("{heads},{length}{flag},dtype={dtype}{rest}"));
        }
    }
    (0..).zip(texts).filter(|(turn, _)| turn % of.max(1) == part).collect()
}
