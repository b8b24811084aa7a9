//! Tiles: blocks of a mask, each with all heads that share it, by ordinary products.
//!
//! Idea: a task owns some queries and keys of one mask and goes through the batches and heads that share it: two products
//! give scores and gradients of weights, and what follows is added to sums of the task's own. Nobody adds to anybody
//! else's, sums do not depend on the run, and no more memory is taken than tasks hold. Half types are widened once.
//! Wins: all but the smallest problems. Limits: none.
//! From: FlashAttention 2 (Dao), with the products of the `gemm` crate.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::places::PLACES;
use crate::attention::AttentionProblem;
use crate::attention_grad::cpu::call::{Call, Rows, row_mut, write};
use crate::attention_grad::cpu::task_inputs::{TaskInputs, numbers};
use crate::attention_mask_grad::{AttentionMaskGrad, AttentionMaskGradProblem, sharing, slot};
use crate::typed::for_dtype;

/// Blocks of queries and keys.
pub(super) struct Tiles;

/// Keys of a tile: scores and sums of a tile stay in the second cache.
const KEYS: usize = 512;

impl Variant<AttentionMaskGrad, Cpu> for Tiles {
    fn id(&self) -> &str {
        "tiles"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &AttentionMaskGradProblem, _: &Cpu) -> Fit {
        Fit::HIGH
    }

    fn space(&self, AttentionMaskGradProblem(p): &AttentionMaskGradProblem, cpu: &Cpu) -> Space {
        let small = p.b * p.h * p.pairs().min(1 << 20) <= 1 << 14;
        let threads = [cpu.threads() as i64].into_iter().chain((small && cpu.threads() > 1).then_some(1));
        Space::single().axis(Axis::ints("block", [64, 128, 32])).axis(Axis::ints("threads", threads))
    }

    fn needs(&self, AttentionMaskGradProblem(p): &AttentionMaskGradProblem, config: &Config) -> Needs {
        let [block, threads] = setting(p, config);
        // Scores, gradients of weights, and sums.
        let all = numbers(p) + threads * 3 * block * KEYS;
        Needs { threads: threads as u64, workspace: 4 * all as u64, ..Needs::default() }
    }

    fn build(
        &self,
        p: &AttentionMaskGradProblem,
        config: &Config,
        cpu: &Cpu,
    ) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Built { p: p.0, setting: setting(&p.0, config), isa: cpu.isa(), pool: cpu.pool().clone() }))
    }
}

/// Queries of a tile, and threads.
fn setting(p: &AttentionProblem, config: &Config) -> [usize; 2] {
    let block = config.size("block").unwrap_or(64).clamp(1, p.sq as usize);
    [block, config.size("threads").unwrap_or(1).max(1)]
}

struct Built {
    p: AttentionProblem,
    setting: [usize; 2],
    isa: Isa,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.p.dtype, T => self.differentiate::<T>(args))
    }
}

/// Rows that tasks on several threads write.
struct Written<T>(Rows<*mut T>);

// SAFETY: the caller of `launch` borrows the buffer until it returns, and every tile is one task's.
unsafe impl<T> Sync for Written<T> {}

impl Built {
    fn differentiate<T: Element + Typed>(&self, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
        let (p, [block, threads]) = (&self.p, self.setting);
        let inputs = &TaskInputs::new(p, self.isa, Call::<T>::new(p, args, PLACES)?);
        let to = &Written(write::<T>(args, slot::DMASK, p.mask_strides())?);
        let (down, across) = ((p.sq as usize).div_ceil(block), (p.sk as usize).div_ceil(KEYS));
        let [batches, heads] = p.masks().map(|n| n as usize);
        // The last queries, which see most keys, come first.
        self.pool.each(threads, batches * heads * down * across, |task| {
            let (tile, mask) = (task % (down * across), task / (down * across));
            let at = [(down - 1 - tile / across) * block, tile % across * KEYS];
            inputs.tile(to, [mask / heads, mask % heads], at, block);
        });
        Ok(())
    }
}

impl<T: Element> TaskInputs<'_, T> {
    /// The gradient of some queries' and keys' entries of one mask.
    fn tile(&self, to: &Written<T>, mask: [usize; 2], [first, key]: [usize; 2], block: usize) {
        let p = self.p;
        let (rows, width) = (block.min(p.sq as usize - first), KEYS.min(p.sk as usize - key));
        let sight = p.sight();
        let seen = sight.of_query(first).start < key + width && sight.of_query(first + rows - 1).end > key;
        let (mut room, mut sums) = ([Vec::new(), Vec::new()], vec![0f32; rows * width]);
        let [batches, heads] = if seen { sharing(p) } else { [0, 0] };
        for (b, h) in (0..batches as usize).flat_map(|b| (0..heads as usize).map(move |h| (b, h))) {
            self.weigh([mask[0] + b, mask[1] + h], [first, rows], [key, width], &mut room);
            sums.iter_mut().zip(&room[1]).for_each(|(sum, slope)| *sum += slope);
        }
        for (i, sums) in sums.chunks_exact(width).enumerate() {
            // SAFETY: the mask has that row of sk elements, and this part of it is this task's alone.
            let row =
                unsafe { row_mut(Rows { first: to.0.first.add(key), ..to.0 }, [mask[0], mask[1], first + i], width) };
            row.iter_mut().zip(sums).for_each(|(to, sum)| *to = T::narrow(*sum));
        }
    }
}
