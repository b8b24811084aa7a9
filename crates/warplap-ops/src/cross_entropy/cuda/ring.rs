//! Pieces of long rows in a ring of shared memory: read once, written once. Twin of `ring.cu`, which says how.
//!
//! Wins: gradients of rows that registers cannot hold. Limits: Hopper and newer; rows of whole vectors of 16 bytes.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, arguments, counted, facts};
use crate::cross_entropy::CrossEntropyProblem;
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan, PrePostLaunches, axis};

/// Pieces of rows in a ring.
pub(super) struct Ring;

/// Blocks that share a row.
const BLOCKS: u64 = 2;

/// Bytes of a vector.
const VECTOR: u64 = 16;

/// Shared memory beside the ring: barriers and what warps and blocks tell each other.
const BESIDE: u64 = 3072;

/// Pieces that a block's part of a row may have.
const PIECES: [u64; 7] = [1, 2, 3, 4, 6, 8, 12];

/// Bytes of a piece that are enough for one copy and few enough to wait for.
const GOOD: u64 = 24 << 10;

/// Bytes of a row from which on it is worth it.
const LEAST: u64 = 16 << 10;

/// Bytes of a piece, and how many places there are for so many pieces of a block's part.
fn ring(p: &CrossEntropyProblem, pieces: u64, chip: &Chip) -> (u64, u64) {
    let vectors = p.n * p.dtype.bytes() as u64 / VECTOR;
    let piece = vectors.div_ceil(BLOCKS * pieces.max(1)) * VECTOR;
    (piece, (chip.shared_memory.saturating_sub(BESIDE) / piece.max(1)).min(32))
}

impl CudaKernelSpec<CrossEntropyProblem> for Ring {
    fn id(&self) -> &'static str {
        "ring"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &CrossEntropyProblem, chip: &Chip) -> Fit {
        let bytes = p.n * p.dtype.bytes() as u64;
        match () {
            _ if chip.capability < (9, 0) => Fit::aside("needs clusters: Hopper or newer"),
            _ if !p.grad => Fit::aside("a loss alone reads its row once anyway"),
            _ if !bytes.is_multiple_of(VECTOR) => Fit::aside("rows are not whole vectors of 16 bytes"),
            _ if bytes < LEAST => Fit::aside("registers hold rows of this length"),
            _ if self.space(p, chip).default_config().is_none() => {
                Fit::aside("shared memory does not hold a row and a piece")
            }
            _ => Fit::HIGH,
        }
    }

    fn space(&self, p: &CrossEntropyProblem, chip: &Chip) -> Space {
        let (p, chip) = (*p, chip.clone());
        let mut pieces = PIECES;
        pieces.sort_by_key(|pieces| ring(&p, *pieces, &chip).0.abs_diff(GOOD));
        Space::single()
            .axis(Axis::ints("WARPS", [24, 21, 28, 16]))
            .axis(Axis::ints("PIECES", pieces.map(|pieces| pieces as i64)))
            .axis(Axis::ints("STREAM", [0, 1]))
            .rule(Rule::on("shared memory holds a row and a piece more", &["PIECES"], move |c| {
                let pieces = c.int("PIECES").map_or(0, |v| v as u64);
                ring(&p, pieces, &chip).1 > pieces
            }))
    }

    fn plan(&self, p: &CrossEntropyProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let (warps, pieces, stream) = (axis(c, "WARPS")?, axis(c, "PIECES")?, axis(c, "STREAM")?);
        let (piece, slots) = ring(p, pieces, chip);
        if slots <= pieces || warps == 0 || warps > 31 {
            let reason = format!("{pieces} pieces of {piece} bytes and one more do not fit shared memory");
            return Err(Rejection::OverLimits { reason });
        }
        let mut defines = facts(p);
        let numbers = [("WARPS", warps), ("PIECES", pieces), ("SLOTS", slots), ("STREAM", stream), ("N", p.n)];
        defines.extend(numbers.map(|(name, value)| (name, value as i64)));
        defines.push(("VEC", (VECTOR / p.dtype.bytes() as u64) as i64));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("ring.cu"), headers: &HEADERS, defines },
            threads: 32 * (warps as u32 + 1),
            shared: slots * piece,
            grid: Grid::Persistent { tiles: p.rows, cluster: BLOCKS as u32 },
            arguments: arguments(p),
            overlap: false,
        })
    }

    fn beside(&self, p: &CrossEntropyProblem, _: &Config, _: &Chip) -> Result<PrePostLaunches, Rejection> {
        Ok(counted(p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cross_entropy::CrossEntropy;
    use warplap_core::op::Op;

    #[test]
    fn a_ring_holds_a_row_s_part_and_a_piece_more() {
        let chip = Chip::h200();
        let p = CrossEntropy::parse("rows=4096,n=128256,dtype=bf16,grad=true").unwrap();
        assert!(matches!(Ring.fit(&p, &chip), Fit::Fits(_)));
        for config in Ring.space(&p, &chip).configs() {
            let plan = Ring.plan(&p, &config, &chip).unwrap();
            assert!(plan.shared + BESIDE <= chip.shared_memory && plan.threads <= 1024, "{config}");
        }
        // 128256 logits are 16032 vectors, 8016 of a block: six pieces of 1336, of which ten fit.
        assert_eq!(ring(&p, 6, &chip), (1336 * 16, 10));
        for text in ["rows=9,n=128256,dtype=bf16", "rows=9,n=128257,dtype=bf16,grad=true", "rows=9,n=512,grad=true"] {
            assert!(matches!(Ring.fit(&CrossEntropy::parse(text).unwrap(), &chip), Fit::Aside(_)), "{text}");
        }
        let long = CrossEntropy::parse("rows=9,n=1048576,grad=true").unwrap();
        assert!(matches!(Ring.fit(&long, &chip), Fit::Aside(_)));
    }
}
