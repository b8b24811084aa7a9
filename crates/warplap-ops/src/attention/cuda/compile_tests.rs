//! Every kernel compiles for every chip it claims, without a GPU: configs from the whole of each space.

use warplap_core::op::Op;
use warplap_core::variant::Fit;

use super::TWINS;
use crate::attention::{Attention, AttentionProblem};
use crate::cuda::compiling::{check_with_spills, chip, compiler, is_long};

/// Bytes that the largest tiles may spill: with four to ten words of a thread in memory they are still the fastest.
const SPILLS: u32 = 40;

fn problem(text: &str) -> AttentionProblem {
    Attention::parse(text).unwrap()
}

/// Compiles at most so many configs, from the first to the last, of every kernel that fits; gives
/// who did.
fn compile(capability: (u32, u32), text: &str, most: usize) -> Vec<&'static str> {
    let Some(compiler) = compiler() else { return Vec::new() };
    let (chip, p) = (chip(capability), problem(text));
    let mut compiled = Vec::new();
    for twin in TWINS.iter().filter(|t| matches!(t.fit(&p, &chip), Fit::Fits(_))) {
        let configs = twin.space(&p, &chip).configs();
        let step = (configs.len().saturating_sub(1)).div_ceil(most.saturating_sub(1).max(1)).max(1);
        for config in configs.iter().step_by(step).take(most) {
            let what = format!("{text}: {} {config}", twin.id());
            let plan = twin.plan(&p, config, &chip).unwrap_or_else(|why| panic!("{what}: {why}"));
            check_with_spills(&plan, &chip, &compiler, &what, SPILLS);
            compiled.push(twin.id());
        }
    }
    compiled
}

#[test]
fn long_sequences_compile_for_hopper() {
    for text in [
        "b=2,h=16,sq=4096,d=128,dtype=bf16",
        "b=2,h=16,sq=4096,d=128,dtype=f16,causal=true",
        "b=2,h=16,sq=4096,d=64,dtype=bf16",
        "b=2,h=16,sq=4096,d=64,dtype=f16,causal=true",
        "b=2,h=16,sq=4096,d=256,dtype=bf16",
        "b=2,h=16,sq=4096,d=96,dtype=f16,scale=-0.5",
    ] {
        let compiled = compile((9, 0), text, 4);
        assert!(compiled.is_empty() || ["flash_mma", "flash_wgmma"].iter().all(|k| compiled.contains(k)), "{text}");
        assert!(compiled.is_empty() || text.contains("scale=-") || compiled.contains(&"flash_lazy"), "{text}");
    }
}

#[test]
fn masks_compile_by_copies_and_by_threads() {
    for text in [
        "b=2,h=16,sq=2048,d=128,dtype=bf16,mask=add",
        "b=2,h=16,sq=2048,d=64,dtype=f16,mask=add,causal=true",
        "b=2,h=16,sq=2048,sk=2046,d=128,dtype=f16,mask=add",
        "b=2,h=16,sq=2048,sk=1999,d=256,dtype=bf16,mask=add",
        "h=2,sq=300,sk=77,d=64,dtype=bf16,mask=add",
    ] {
        compile((9, 0), text, 4);
    }
}

#[test]
fn windows_caps_and_distances_compile() {
    for text in [
        "b=2,h=16,sq=2048,d=128,dtype=bf16,window=512,causal=true,lse=true",
        "b=2,h=16,sq=2048,d=128,dtype=bf16,alibi=true",
        "b=2,h=16,sq=2048,d=128,dtype=f16,alibi=true,causal=true,window=300,lse=true",
        "b=2,h=16,sq=2048,d=64,dtype=f16,softcap=30,causal=true",
        "b=2,h=16,sq=2048,d=64,dtype=bf16,window=128",
        "b=2,h=16,sq=2048,d=128,dtype=bf16,mask=add,over=heads,softcap=9",
        "h=32,hkv=8,sq=1,sk=4096,d=128,dtype=bf16,window=1024,corner=bottom,causal=true,alibi=true",
        "h=2,sq=100,d=101,dtype=bf16,mask=add,over=each,alibi=true,softcap=2,window=9,causal=true",
        "b=2,h=16,sq=2048,d=128,dtype=bf16,dropout=0.1,lse=true",
        "b=2,h=16,sq=2048,sk=1999,d=64,dtype=f16,mask=bool,over=batches,dropout=0.1,causal=true",
        "h=32,hkv=8,sq=1,sk=4096,d=128,dtype=bf16,mask=bool",
        "b=2,h=16,sq=2048,d=128,dtype=bf16,mask=tiles,tile=128,live=20,over=heads",
        "b=2,h=16,sq=2000,d=64,dtype=f16,mask=tiles,tile=64,causal=true,dropout=0.1",
        "b=1,h=4,sq=300,d=64,dtype=f16,mask=tiles,tile=32,window=40",
        "b=1,h=4,sq=512,d=64,dtype=bf16,mask=tiles,tile=256,lse=true",
        "h=32,hkv=8,sq=1,sk=4096,d=128,dtype=bf16,mask=tiles",
    ] {
        compile((9, 0), text, 3);
        compile((8, 0), text, 2);
    }
}

#[test]
fn short_and_odd_problems_compile_for_hopper() {
    for text in [
        "h=12,sq=197,d=64,dtype=f16",
        "b=2,h=8,sq=1000,d=80,dtype=bf16,layout=bshd",
        "h=8,sq=300,sk=500,d=192,dv=128,dtype=bf16,causal=true",
        "h=2,sq=64,d=16,dv=256,dtype=f16",
        "h=2,sq=100,d=233,dtype=f16",
        "h=2,sq=100,d=101,dv=7,dtype=bf16,mask=add",
        "h=2,sq=50,d=50,dtype=f16,causal=true",
        "h=1,sq=1,d=1,dtype=bf16",
    ] {
        compile((9, 0), text, 3);
    }
}

#[test]
fn decoding_compiles_for_hopper() {
    for text in [
        "h=32,sq=1,sk=4096,d=128,dtype=bf16",
        "h=32,hkv=8,sq=1,sk=16384,d=128,dtype=f16",
        "b=16,h=32,sq=1,sk=4096,d=128,dtype=bf16",
        "h=8,hkv=2,sq=3,sk=999,d=64,dtype=f16,mask=add,causal=true",
        "h=8,hkv=1,sq=2,sk=999,d=256,dtype=bf16,scale=0",
    ] {
        let compiled = compile((9, 0), text, 5);
        assert!(compiled.is_empty() || compiled.contains(&"flash_split"), "{text}");
    }
}

#[test]
fn keys_in_pages_and_of_unequal_length_compile() {
    for text in [
        "b=16,h=32,hkv=8,sq=1,sk=4096,d=128,dtype=bf16,page=16,lengths=true,layout=bshd",
        "b=2,h=32,sq=1,sk=4096,d=128,dtype=f16,page=64",
        "b=2,h=32,hkv=2,sq=3,sk=4096,d=64,dtype=f16,page=32,lengths=true,causal=true,corner=bottom,window=999,lse=true",
        "b=2,h=8,hkv=1,sq=2,sk=999,d=256,dtype=bf16,lengths=true,alibi=true,softcap=9,mask=add",
    ] {
        for capability in [(8, 0), (9, 0)] {
            let compiled = compile(capability, text, 4);
            assert!(compiled.is_empty() || compiled.contains(&"flash_split"), "{text}");
        }
    }
}

#[test]
fn packed_sequences_compile() {
    for text in [
        "b=16,h=16,sq=4096,d=128,dtype=bf16,tq=16384,causal=true,layout=bshd,lse=true",
        "b=16,h=16,sq=2048,d=64,dtype=f16,tq=16384,layout=bshd",
        "b=5,h=8,hkv=2,sq=197,sk=1000,d=64,dtype=f16,tq=300,tk=2000,causal=true,corner=bottom,window=99",
        "b=3,h=2,sq=65,d=101,dtype=bf16,tq=100,mask=add,dropout=0.1,alibi=true,softcap=9,corner=bottom",
    ] {
        for capability in [(8, 0), (9, 0)] {
            let compiled = compile(capability, text, 3);
            assert!(compiled.is_empty() || compiled.contains(&"flash_mma"), "{text}");
        }
    }
}

#[test]
fn everything_compiles_for_chips_before_and_after_hopper() {
    let chips: &[(u32, u32)] = if is_long() { &[(8, 0), (8, 9), (10, 0), (12, 0)] } else { &[(8, 0), (12, 0)] };
    for &capability in chips {
        for text in [
            "b=2,h=16,sq=4096,d=128,dtype=bf16,causal=true",
            "h=8,sq=500,d=64,dtype=f16,mask=add",
            "h=8,sq=500,d=256,dtype=bf16",
            "h=2,sq=100,d=75,dtype=f16",
            "h=32,hkv=8,sq=1,sk=4096,d=128,dtype=f16",
        ] {
            compile(capability, text, 3);
        }
    }
}
