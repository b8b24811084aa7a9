//! What the twins of attention say without a GPU: who fits and why not, spaces, the arithmetic of launches.

use warplap_core::op::Op;
use warplap_core::space::Config;
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Layers};

use super::TWINS;
use crate::attention::{Attention, AttentionProblem, SLOTS, slot};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan};
use crate::cuda::scratch::Need;

fn problem(text: &str) -> AttentionProblem {
    Attention::parse(text).unwrap()
}

fn twin(id: &str) -> &'static dyn CudaKernelSpec<AttentionProblem> {
    TWINS.into_iter().find(|t| t.id() == id).unwrap()
}

fn planned(id: &str, text: &str, config: &str) -> Plan {
    let plan = twin(id).plan(&problem(text), &Config::parse(config).unwrap(), &Chip::h200());
    plan.unwrap_or_else(|why| panic!("{text}: {id} {config}: {why}"))
}

/// Problems of every kind: long and short, wide and odd heads, masks, grouped heads, decoding.
const PROBLEMS: [&str; 36] = [
    "b=2,h=16,sq=4096,d=128,dtype=bf16",
    "b=2,h=16,sq=4096,d=128,dtype=bf16,causal=true",
    "b=2,h=16,sq=4096,d=64,dtype=f16",
    "b=2,h=16,sq=4096,d=64,dtype=bf16,causal=true",
    "b=2,h=16,sq=4096,d=96,dtype=bf16",
    "b=2,h=16,sq=4096,d=256,dtype=f16,causal=true",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,mask=add",
    "b=2,h=16,sq=2048,sk=2047,d=128,dtype=bf16,mask=add",
    "b=2,h=16,sq=2048,sk=1999,d=256,dtype=f16,mask=add",
    "b=2,h=8,sq=1000,d=80,dtype=bf16,layout=bshd",
    "h=12,sq=197,d=64,dtype=f16",
    "h=8,sq=300,sk=77,d=256,dtype=f16,mask=add",
    "h=2,sq=1,sk=1,d=1,dtype=bf16,mask=add,causal=true",
    "h=2,sq=100,d=233,dtype=f16,mask=add",
    "h=2,sq=100,d=101,dv=7,dtype=f16,scale=-1",
    "h=32,hkv=8,sq=1,sk=16384,d=128,dtype=bf16",
    "b=16,h=32,sq=1,sk=4096,d=128,dtype=bf16",
    "h=4,hkv=1,sq=8,sk=100,d=256,dv=192,dtype=f16,causal=true,mask=add",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,window=512,causal=true,lse=true",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,alibi=true",
    "b=2,h=16,sq=2048,d=64,dtype=f16,softcap=30,causal=true",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,mask=add,over=heads",
    "h=32,hkv=8,sq=1,sk=4096,d=128,dtype=bf16,window=1024,corner=bottom,causal=true",
    "h=2,sq=100,d=101,dtype=bf16,mask=add,over=each,alibi=true,softcap=2,window=9,causal=true",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,dropout=0.1,lse=true",
    "b=2,h=16,sq=2048,sk=1999,d=64,dtype=f16,mask=bool,over=batches,dropout=0.1,causal=true",
    "h=32,hkv=8,sq=1,sk=4096,d=128,dtype=bf16,mask=bool",
    "b=2,h=16,sq=2048,d=128,dtype=bf16,mask=tiles,tile=128,live=20,over=heads",
    "b=2,h=16,sq=2000,d=64,dtype=f16,mask=tiles,tile=64,causal=true,dropout=0.1",
    "h=32,hkv=8,sq=1,sk=4096,d=128,dtype=bf16,mask=tiles",
    "b=16,h=32,hkv=8,sq=1,sk=4096,d=128,dtype=bf16,page=16,lengths=true,layout=bshd",
    "b=3,h=32,hkv=8,sq=2,sk=999,d=64,dtype=f16,page=64,causal=true,corner=bottom",
    "b=3,h=8,sq=100,d=64,dtype=f16,page=8,lengths=true",
    "b=16,h=16,sq=4096,d=128,dtype=bf16,tq=16384,causal=true,layout=bshd,lse=true",
    "b=5,h=8,hkv=2,sq=197,sk=1000,d=64,dtype=f16,tq=300,tk=2000,causal=true,corner=bottom,window=99,layout=bshd",
    "b=3,h=2,sq=65,d=101,dtype=bf16,tq=100,mask=add,dropout=0.1",
];

#[test]
fn every_kernel_file_has_its_twin_in_the_list() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/attention/cuda");
    let mut kernels = 0;
    for file in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let Some(stem) = file.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".cu")) else {
            continue;
        };
        assert!(TWINS.iter().any(|t| t.id() == stem), "{stem}.cu has no twin");
        let text = |ending: &str| std::fs::read_to_string(file.with_extension(ending)).unwrap();
        assert!(text("cu").contains(&format!("{stem}(")), "{stem}.cu has no entry of its name");
        assert!(text("rs").starts_with("//!"), "{stem}.rs does not open with its header");
        kernels += 1;
    }
    // One more is a library.
    assert_eq!((kernels, super::catalog().variants().len()), (TWINS.len(), TWINS.len() + 1));
}

#[test]
fn every_space_is_small_and_every_config_of_it_has_a_plan() {
    let smaller = Chip { capability: (8, 6), shared_memory: 101_376, ..Chip::h200() };
    for (text, chip) in PROBLEMS.into_iter().flat_map(|text| [(text, Chip::h200()), (text, smaller.clone())]) {
        let p = problem(text);
        let slots = Attention::signature(&p).slots().len();
        for twin in TWINS.iter().filter(|t| matches!(t.fit(&p, &chip), Fit::Fits(_))) {
            let space = twin.space(&p, &chip);
            let configs = space.configs();
            let what = format!("{text}: {} on {:?}", twin.id(), chip.capability);
            assert!((1..=40).contains(&configs.len()), "{what} has {}", configs.len());
            // Where the first values do not go together, a search begins anywhere.
            let begins = space.default_config().unwrap();
            let same = space.axes().iter().all(|axis| begins.get(axis.name()) == axis.default_value());
            assert!(same, "{what} begins with {begins}");
            for config in &configs {
                let plan = twin.plan(&p, config, &chip).unwrap_or_else(|why| panic!("{what} {config}: {why}"));
                assert!(plan.shared <= chip.shared_memory && plan.threads <= 1024, "{what} {config}");
                // More than a launch takes, or a slot that is none, would be refused when it is built.
                let named = |a: &Argument| !matches!(a, Argument::Map(i, _) | Argument::Pointer(i) if *i >= slots);
                assert!(plan.arguments.len() <= 48 && plan.arguments.iter().all(named), "{what} {config}");
                // What a kernel counts for itself is what the host asked for.
                let shared_bytes = plan.source.defines.iter().find(|(name, _)| *name == "SHARED");
                assert!(shared_bytes.is_none_or(|(_, bytes)| *bytes as u64 == plan.shared), "{what} {config}");
            }
        }
    }
}

#[test]
fn kernels_say_why_they_stand_aside() {
    let hopper = Chip::h200();
    let ampere = Chip { capability: (8, 0), ..hopper.clone() };
    let old = Chip { capability: (7, 5), ..hopper.clone() };
    for (id, text, chip, part) in [
        ("flash_mma", "h=2,sq=64,d=64,dtype=f32", &hopper, "f16 and bf16"),
        ("flash_mma", "h=2,sq=64,d=257,dtype=f16", &hopper, "256 elements"),
        ("flash_mma", "h=2,sq=64,d=64,dtype=f16", &old, "sm_80"),
        ("flash_wgmma", "h=2,sq=64,d=64,dtype=f16", &ampere, "Hopper"),
        ("flash_wgmma", "h=2,sq=64,d=64,dv=72,dtype=f16", &hopper, "multiples"),
        ("flash_wgmma", "h=2,sq=64,d=64,dtype=f32", &hopper, "f16 and bf16"),
        ("flash_lazy", "h=2,sq=640,d=64,dtype=f16", &ampere, "Hopper"),
        ("flash_lazy", "h=2,sq=640,d=64,dtype=f16,mask=add", &hopper, "nothing added"),
        ("flash_lazy", "h=2,sq=640,d=64,dtype=f16,alibi=true", &hopper, "nothing added"),
        ("flash_lazy", "h=2,sq=640,d=64,dtype=f16,dropout=0.1", &hopper, "no dropout"),
        ("flash_lazy", "h=2,sq=640,d=64,dtype=f16,scale=-1", &hopper, "above 0"),
        ("flash_lazy", "h=2,sq=640,d=72,dtype=f16", &hopper, "multiples"),
        ("flash_lazy", "h=2,sq=64,d=64,dtype=f16", &hopper, "128 queries"),
        ("flash_split", "h=2,sq=1,sk=64,d=60,dtype=f16", &hopper, "multiples of 8"),
        ("flash_split", "h=2,sq=200,d=64,dtype=f16", &hopper, "few queries"),
        ("flash_split", "h=64,hkv=1,sq=4,sk=64,d=64,dtype=f16", &hopper, "few queries"),
        ("flash_split", "h=8,sq=1,sk=64,d=64,dtype=f16,page=24", &hopper, "multiple of 16"),
        ("flash_mma", "h=8,sq=1,sk=64,d=64,dtype=f16,page=16", &hopper, "decoding"),
        ("flash_wgmma", "h=8,sq=64,d=64,dtype=f16,lengths=true", &hopper, "decoding"),
        ("flash_wgmma", "h=8,sq=64,d=64,dtype=f16,tq=64,mask=add", &hopper, "by sequence"),
        ("flash_split", "h=8,sq=1,sk=64,d=64,dtype=f16,tq=1,tk=64", &hopper, "offsets"),
    ] {
        match twin(id).fit(&problem(text), chip) {
            Fit::Aside(why) => assert!(why.contains(part), "{id} {text}: {why}"),
            Fit::Fits(_) => panic!("{id} fits {text}"),
        }
    }
    for (id, text, chip) in [
        ("flash_mma", "h=2,sq=64,d=7,dv=5,dtype=f16,mask=add,causal=true", &ampere),
        ("flash_wgmma", "h=2,sq=64,d=64,dv=80,dtype=f16,layout=bshd", &hopper),
        ("flash_split", "h=32,hkv=8,sq=1,sk=999,d=128,dtype=bf16", &ampere),
        ("flash_split", "b=2,h=32,hkv=8,sq=1,sk=999,d=128,dtype=bf16,page=32,lengths=true,layout=bshd", &ampere),
    ] {
        assert_eq!(twin(id).fit(&problem(text), chip), Fit::HIGH, "{id} {text}");
    }
}

/// Where a search begins is what won when the kernels were proved on an H200, or near it.
#[test]
fn searches_begin_with_settings_that_won() {
    for (id, text, config) in [
        (
            "flash_wgmma",
            "b=2,h=16,sq=4096,d=128,dtype=bf16",
            "CONS=2,BN=128,STAGES=2,QREG=1,SHARE=0,SPLITS=1,PINGPONG=1,SCHED=1",
        ),
        (
            "flash_wgmma",
            "b=2,h=16,sq=4096,d=128,dtype=bf16,causal=true",
            "CONS=2,BN=128,STAGES=2,QREG=1,SHARE=0,SPLITS=1,PINGPONG=0,SCHED=2",
        ),
        (
            "flash_wgmma",
            "h=12,sq=197,d=64,dtype=f16",
            "CONS=2,BN=64,STAGES=4,QREG=0,SHARE=1,SPLITS=2,PINGPONG=0,SCHED=0",
        ),
        (
            "flash_wgmma",
            "b=2,h=8,sq=1000,d=64,dtype=f16",
            "CONS=1,BN=128,STAGES=4,QREG=1,SHARE=0,SPLITS=1,PINGPONG=0,SCHED=0",
        ),
        (
            "flash_lazy",
            "b=2,h=16,sq=4096,d=128,dtype=bf16,causal=true",
            "AHEAD=0,CONS=2,BN=128,STAGES=2,QREG=1,PINGPONG=1,SCHED=2",
        ),
        ("flash_lazy", "b=2,h=16,sq=4096,d=64,dtype=bf16", "AHEAD=0,CONS=4,BN=64,STAGES=3,QREG=0,PINGPONG=0,SCHED=1"),
        (
            "flash_lazy",
            "b=16,h=16,sq=4096,d=128,dtype=bf16,tq=16384,causal=true,window=99",
            "AHEAD=0,CONS=2,BN=128,STAGES=2,QREG=1,PINGPONG=1,SCHED=2",
        ),
        ("flash_mma", "b=2,h=16,sq=4096,d=128,dtype=bf16", "BLOCK_M=128,BLOCK_N=64,WARPS=4,STAGES=1"),
        ("flash_mma", "h=12,sq=197,d=64,dtype=f16", "BLOCK_M=64,BLOCK_N=64,WARPS=4,STAGES=2"),
        ("flash_split", "h=32,sq=1,sk=4096,d=128,dtype=bf16", "WARPS=4,TILES=1,COMBINE=1,PARTS=8"),
        ("flash_split", "b=16,h=32,sq=1,sk=4096,d=128,dtype=bf16", "WARPS=4,TILES=2,COMBINE=0,PARTS=1"),
        ("flash_split", "h=32,hkv=8,sq=1,sk=16384,d=128,dtype=bf16", "WARPS=8,TILES=2,COMBINE=2,PARTS=16"),
        ("flash_split", "h=32,hkv=8,sq=1,sk=1024,d=128,dtype=bf16", "WARPS=4,TILES=1,COMBINE=1,PARTS=8"),
    ] {
        let first = twin(id).space(&problem(text), &Chip::h200()).default_config().unwrap();
        assert_eq!(first, Config::parse(config).unwrap(), "{id}: {text}");
    }
}

/// The launches that won when the kernels were proved on an H200.
#[test]
fn launches_are_those_the_kernels_were_proved_with() {
    let long = "b=2,h=16,sq=4096,d=128,dtype=bf16";
    let mma = planned("flash_mma", long, "BLOCK_M=128,BLOCK_N=64,WARPS=4,STAGES=1");
    assert_eq!((mma.threads, mma.shared, mma.grid), (128, 69_632, Grid::Blocks(1024)));
    assert_eq!(mma.arguments.len(), 38);
    let wgmma = planned("flash_wgmma", long, "CONS=2,BN=128,STAGES=2,QREG=1,SHARE=0,SPLITS=1,PINGPONG=0,SCHED=1");
    assert_eq!((wgmma.threads, wgmma.shared), (384, 164_864));
    assert_eq!(wgmma.grid, Grid::Persistent { tiles: 1024, cluster: 1 });
    assert_eq!((wgmma.arguments.len(), wgmma.scratch()), (31, Need::default()));
    let text = format!("{long},mask=add");
    let masked = planned("flash_wgmma", &text, "CONS=2,BN=128,STAGES=2,QREG=1,SHARE=0,SPLITS=1,PINGPONG=1,SCHED=2");
    assert_eq!((masked.shared, masked.scratch()), (164_864 + 32_768, Need { words: 2, zeros: 2 }));
    let lazy = planned("flash_lazy", long, "AHEAD=1,CONS=2,BN=64,STAGES=6,QREG=1,PINGPONG=0,SCHED=2");
    assert_eq!((lazy.threads, lazy.shared, lazy.arguments.len()), (384, 230_400, 23));
    assert_eq!(lazy.grid, Grid::Persistent { tiles: 1024, cluster: 1 });
    assert_eq!(lazy.scratch(), Need { words: 2, zeros: 2 });
    let decode = "h=32,hkv=8,sq=1,sk=16384,d=128,dtype=bf16";
    let split = planned("flash_split", decode, "WARPS=8,TILES=2,COMBINE=2,PARTS=16");
    let entry = 8 * (128 + 4) + 32;
    assert_eq!((split.threads, split.shared, split.grid), (256, 9 * entry * 4, Grid::Blocks(128)));
    assert_eq!(split.scratch(), Need { words: 8 + 128 * entry, zeros: 8 });
    assert_eq!(split.arguments.len(), 36);
    let cluster = planned("flash_split", "h=32,sq=1,sk=4096,d=128,dtype=bf16", "WARPS=4,TILES=1,COMBINE=1,PARTS=8");
    for fact in [("SPLITS", 8), ("RESIDENT", 4), ("GROUP", 1), ("COLUMNS", 1)] {
        assert!(cluster.source.defines.contains(&fact), "{fact:?}");
    }
    assert_eq!((cluster.grid, cluster.scratch()), (Grid::Blocks(256), Need::default()));
}

#[test]
fn maps_have_four_dimensions_and_follow_the_layout() {
    for (layout, pitches) in [("bhsd", [64, 32]), ("bshd", [256, 64])] {
        let text = format!("b=3,h=4,hkv=2,sq=200,sk=304,d=64,dv=32,dtype=f16,mask=add,layout={layout}");
        let p = problem(&text);
        let plan = planned("flash_wgmma", &text, "CONS=1,BN=64,STAGES=2,QREG=0,SHARE=0,SPLITS=1,PINGPONG=0,SCHED=0");
        let map = |a: &Argument| match a {
            Argument::Map(buffer, spec) => Some((*buffer, *spec)),
            _ => None,
        };
        let maps: Vec<_> = plan.arguments.iter().filter_map(map).collect();
        assert_eq!(maps.iter().map(|m| m.0).collect::<Vec<_>>(), [slot::Q, slot::K, slot::V, slot::MASK]);
        let heads = |i: usize| match maps[i].1.layers {
            Layers::Heads { counts, strides } => (counts, strides),
            other => panic!("{other:?}"),
        };
        let of = |s: crate::attention::Strides| [s.head as u64, s.batch as u64];
        assert_eq!((heads(0), heads(2)), (([4, 3], of(p.q_strides())), ([2, 3], of(p.v_strides()))));
        assert_eq!(heads(3), ([1, 1], [200 * 304; 2]));
        assert_eq!([maps[0].1.pitch, maps[2].1.pitch], pitches);
        assert_eq!([maps[0].1.block, maps[1].1.block, maps[3].1.block], [[64, 64]; 3]);
    }
}

#[test]
fn settings_that_no_kernel_is_made_for_are_refused() {
    let (chip, p) = (Chip::h200(), problem("b=2,h=16,sq=4096,d=128,dtype=bf16"));
    for (id, config) in [
        ("flash_mma", "BLOCK_M=128,BLOCK_N=64,WARPS=3,STAGES=1"),
        ("flash_mma", "BLOCK_M=64,BLOCK_N=24,WARPS=4,STAGES=1"),
        ("flash_mma", "BLOCK_M=64,BLOCK_N=64,WARPS=4,STAGES=9"),
        ("flash_wgmma", "CONS=2,BN=96,STAGES=2,QREG=1,SHARE=0,SPLITS=1,PINGPONG=0,SCHED=1"),
        ("flash_wgmma", "CONS=1,BN=64,STAGES=2,QREG=0,SHARE=0,SPLITS=1,PINGPONG=1,SCHED=1"),
        ("flash_wgmma", "CONS=2,BN=64,STAGES=2,QREG=0,SHARE=1,SPLITS=1,PINGPONG=0,SCHED=1"),
        ("flash_wgmma", "CONS=3,BN=128,STAGES=2,QREG=0,SHARE=0,SPLITS=1,PINGPONG=0,SCHED=1"),
        ("flash_wgmma", "CONS=2,BN=128,STAGES=4,QREG=1,SHARE=0,SPLITS=1,PINGPONG=0,SCHED=1"),
        ("flash_lazy", "AHEAD=1,CONS=2,BN=128,STAGES=2,QREG=1,PINGPONG=0,SCHED=1"),
        ("flash_lazy", "AHEAD=0,CONS=2,BN=128,STAGES=2,QREG=1,PINGPONG=1,SCHED=3"),
        ("flash_split", "WARPS=4,TILES=1,COMBINE=0,PARTS=2"),
        ("flash_split", "WARPS=4,TILES=1,COMBINE=1,PARTS=16"),
        ("flash_split", "WARPS=4,TILES=3,COMBINE=0,PARTS=1"),
    ] {
        assert!(twin(id).plan(&p, &Config::parse(config).unwrap(), &chip).is_err(), "{id} {config}");
    }
    assert_eq!(Attention::signature(&p).slots().len(), SLOTS);
}

/// Blocks of a cluster that take a part of the keys each, and tiles of packed sequences, have a tile of 64 queries or a
/// sequence to themselves.
#[test]
fn parts_of_the_keys_and_packed_sequences_have_a_tile_to_themselves() {
    let fits = |text: &str| matches!(twin("flash_wgmma").fit(&problem(text), &Chip::h200()), Fit::Fits(_));
    let packed = "b=5,h=8,sq=197,d=64,dtype=f16,tq=500";
    assert!(fits(packed) && !fits(&format!("{packed},mask=add")));
    let [short, long] = ["h=8,sq=512,d=64,dtype=f16", "b=2,h=16,sq=4096,d=64,dtype=f16"];
    let axes = "BN=64,QREG=0,PINGPONG=0,STAGES=4";
    for (text, rest, legal) in [
        (short, "CONS=2,SHARE=1,SPLITS=2,SCHED=0", true),
        (short, "CONS=2,SHARE=0,SPLITS=2,SCHED=0", false),
        (short, "CONS=2,SHARE=1,SPLITS=9,SCHED=0", false),
        (long, "CONS=2,SHARE=0,SPLITS=1,SCHED=1", true),
        (long, "CONS=1,SHARE=0,SPLITS=2,SCHED=1", false),
        (packed, "CONS=2,SHARE=0,SPLITS=1,SCHED=0", true),
        (packed, "CONS=2,SHARE=0,SPLITS=1,SCHED=1", false),
        (packed, "CONS=1,SHARE=0,SPLITS=2,SCHED=0", false),
    ] {
        let config = Config::parse(&format!("{axes},{rest}")).unwrap();
        let plan = twin("flash_wgmma").plan(&problem(text), &config, &Chip::h200());
        assert_eq!(plan.is_ok(), legal, "{text} {rest}: {plan:?}");
    }
    let split = "CONS=2,BN=64,STAGES=4,QREG=0,SHARE=1,SPLITS=2,PINGPONG=0,SCHED=0";
    assert_eq!(planned("flash_wgmma", short, split).grid, Grid::Blocks(2 * 8 * 8));
    let lazy = "AHEAD=0,CONS=3,BN=128,STAGES=2,QREG=0,PINGPONG=0,SCHED";
    let dealt = planned("flash_lazy", packed, &format!("{lazy}=2"));
    assert_eq!(dealt.grid, Grid::Persistent { tiles: (500 / 192 + 5) * 8, cluster: 1 });
    let zigzag = Config::parse(&format!("{lazy}=1")).unwrap();
    assert!(twin("flash_lazy").plan(&problem(packed), &zigzag, &Chip::h200()).is_err());
    let whole = "CONS=2,BN=128,STAGES=2,QREG=1,SHARE=0,SPLITS=1,PINGPONG=0,SCHED=0";
    assert_eq!(planned("flash_wgmma", packed, whole).grid, Grid::Blocks((500 / 128 + 5) * 8));
}
