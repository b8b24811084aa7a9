//! cuDNN: NVIDIA's library, which fuses the graph of attention by itself, with its heuristics' list as an axis.
//!
//! Idea: always race what a user could have called instead, and let the race correct the heuristics' order. Wins: long
//! prompts of half types on Hopper. Limits: where the library is found (version 9); heads of 8, 16 … 256 elements;
//! no dropped weights, ALiBi, masks, unequal lengths or pages. A plan takes the library half a second when it
//! is made for the first time, and is kept beside the compiled kernels. From Python torch's own call of the same
//! library stands aside for this one, which costs the host less.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cuda::{Chip, Cuda, Dnn, DnnPlan, Stream};

use super::cudnn_graph::graph;
use crate::attention::{Attention, AttentionProblem, Mask, SLOTS};
use crate::cuda::own::{Aligns, addresses};
use crate::cuda::plan::axis;
use crate::cuda::scratch::{Need, Scratch};

/// NVIDIA's library.
pub(super) struct Cudnn;

/// Entries of the heuristics' list that may race.
const CHOICES: i64 = 4;

/// The widest heads of its engines.
const MOST: u64 = 256;

/// Why a problem is nothing for the library's engines, if so.
fn no_engine(p: &AttentionProblem, chip: &Chip) -> Option<&'static str> {
    if chip.capability.0 < 8 {
        Some("its engines need sm_80 or newer")
    } else if !matches!(p.dtype, DType::F16 | DType::Bf16) {
        Some("f16 and bf16 only")
    } else if p.d.max(p.dv) > MOST || !(p.d | p.dv).is_multiple_of(8) {
        Some("heads of 8, 16 … 256 elements only")
    } else if p.dropout() > 0.0 {
        Some("it drops other weights than the seed says")
    } else if p.alibi {
        Some("it takes no slopes")
    } else if p.is_uneven() {
        Some("keys in pages or of unequal lengths: decoding kernels do that")
    } else if p.mask != Mask::None {
        // Seen: a query that the lowest finite numbers hide from all keys gets another answer from some of its engines.
        Some("its engines disagree about masks of the lowest numbers")
    } else if p.window.is_some() && !(p.causal && p.sq == p.sk) {
        Some("windows of causal problems with as many queries as keys only")
    } else if p.scale() <= 0.0 {
        Some("it looks for the largest product before it scales: the scale must be above zero")
    } else if p.sq.max(p.sk).max(p.b * p.h) > i32::MAX as u64 / 2 {
        Some("sizes must fit 30 bits")
    } else {
        None
    }
}

impl Variant<Attention, Cuda> for Cudnn {
    fn id(&self) -> &str {
        "cudnn"
    }

    fn source(&self) -> SourceHash {
        // Another version of the library is another kernel.
        let version = Dnn::get().map_or(0, Dnn::version).to_string();
        source!(&version)
    }

    fn fit(&self, p: &AttentionProblem, cuda: &Cuda) -> Fit {
        match no_engine(p, cuda.chip()) {
            Some(why) => Fit::aside(why),
            None => Dnn::get().map_or_else(Fit::aside, |_| Fit::HIGH),
        }
    }

    fn space(&self, _: &AttentionProblem, _: &Cuda) -> Space {
        Space::single().axis(Axis::ints("choice", 0..CHOICES))
    }

    // Nothing is compiled ahead: the library compiles one kernel at a time in a process and loads what it has compiled.
    fn build(&self, p: &AttentionProblem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        let refused = |reason: String| Rejection::DoesNotBuild { reason };
        if let Some(why) = no_engine(p, cuda.chip()) {
            return Err(refused(why.into()));
        }
        let choice = axis(config, "choice")?;
        let (graph, slots) = graph(p);
        let made = DnnPlan::choose(&graph, choice as usize, cuda).map_err(|e| refused(e.to_string()))?;
        let plan = made.ok_or_else(|| refused(format!("the heuristics have no proposal {choice}")))?;
        // Some of it even where none is needed: every launch names a workspace.
        let scratch = Scratch::new(Need { words: plan.workspace().div_ceil(4).max(4), zeros: 0 });
        Ok(Box::new(Call { aligns: Aligns::of(&Attention::signature(p))?, slots, plan, scratch }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

struct Call {
    aligns: Aligns<SLOTS>,
    slots: Vec<usize>,
    plan: DnnPlan,
    scratch: Scratch,
}

impl Kernel<Cuda> for Call {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let (slot_addresses, mut at) = (addresses(args, &self.aligns)?, [0; SLOTS]);
        for (to, slot) in at.iter_mut().zip(&self.slots) {
            *to = slot_addresses[*slot];
        }
        let workspace = self.scratch.address(queue)?;
        // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's, so that the buffers
        // hold what the problem spans, and the views borrow them; the scratch is this stream's own.
        let launched = unsafe { self.plan.launch(&at[..self.slots.len().min(SLOTS)], workspace, queue) };
        launched.map_err(|e| e.rejection())
    }

    fn workspace(&self) -> u64 {
        self.plan.workspace()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engines_do_not_do_is_said() {
        let why = |text: &str, chip: &Chip| no_engine(&Attention::parse(text).unwrap(), chip);
        let (h200, plain) = (Chip::h200(), "b=2,h=4,hkv=2,sq=64,d=64,dtype=bf16");
        for rest in [
            "",
            ",lse=true",
            ",causal=true",
            ",causal=true,corner=bottom,sk=96",
            ",corner=bottom,sk=97",
            ",layout=bshd,dv=128",
            ",window=5,causal=true,corner=bottom",
            ",softcap=30,scale=20",
        ] {
            assert_eq!(why(&format!("{plain}{rest}"), &h200), None, "{rest}");
        }
        for (rest, part) in [
            (",dropout=0.1", "drops"),
            (",alibi=true", "slopes"),
            (",lengths=true", "lengths"),
            (",page=16", "pages"),
            (",mask=bool", "masks"),
            (",mask=add", "masks"),
            (",window=5", "windows"),
            (",window=5,causal=true,sk=65", "windows"),
            (",scale=-1", "scale"),
            (",scale=0", "scale"),
            (",dv=264", "256"),
            (",dv=60", "256"),
        ] {
            let said = why(&format!("{plain}{rest}"), &h200).unwrap_or_else(|| panic!("{rest} is taken"));
            assert!(said.contains(part), "{rest}: {said}");
        }
        assert_eq!(why("h=2,sq=8,d=64,dtype=f32", &h200), Some("f16 and bf16 only"));
        let old = Chip { capability: (7, 5), ..h200 };
        assert!(why(plain, &old).is_some_and(|said| said.contains("sm_80")));
    }
}
