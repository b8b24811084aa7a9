//! What the plans of attention's gradients share: the scratch of a chain, the kernel in front of every chain, the numbers
//! between pointers and strides.

use warplap_cuda::{AMPERE, ATTENTION, Chip, ELEMENT, PACKED, PHILOX, Source, dtype_code};

use crate::attention::AttentionProblem;
use crate::attention::cuda::plan::{NOTHING, floats, packed_fact, strides, window};
use crate::attention_grad::slot;
use crate::cuda::plan::{Argument, Grid, Plan, int};
use crate::cuda::scratch::Need;

const HEADERS: [(&str, &str); 5] = [AMPERE, ELEMENT, ATTENTION, PHILOX, PACKED];

/// Threads of a block of `delta` and of `finish`.
pub(crate) const THREADS: u64 = 256;

/// The scratch of a chain: log-sum-exps in powers of two and deltas of every query, padded to whole blocks, and sums of
/// dQ where a kernel adds to them.
#[derive(Clone, Copy)]
pub(crate) struct Chain {
    /// Queries of a head of one batch; of the longest sequence where they are packed.
    pub(crate) padded: u64,
    /// Numbers of one kind of a head: of one batch, or of all sequences where they are packed.
    room: u64,
    /// Numbers of one kind.
    all: u64,
    /// What they are padded to.
    block: u64,
    /// Sums of a query.
    sums: u64,
}

impl Chain {
    /// Queries in blocks of so many, with so many sums each.
    pub(crate) fn new(p: &AttentionProblem, block: u64, sums: u64) -> Self {
        let padded = p.sq.next_multiple_of(block);
        // Packed sequences have blocks of their own: fewer than one more each than their rows fill.
        let packed = p.packed.map(|packed| packed.tq.next_multiple_of(block) + p.b * block);
        let (room, heads) = packed.map_or((padded, p.b * p.h), |room| (room, p.h));
        Chain { padded, room, all: heads * room, block, sums }
    }

    fn need(self) -> Need {
        Need { words: self.all * (2 + self.sums), zeros: 0 }
    }

    /// Where log-sum-exps and deltas lie, for the main kernel: it brings the scratch along.
    pub(crate) fn scratch_arguments(self) -> [Argument; 2] {
        [Argument::Scratch(self.need()), Argument::Room(self.all)]
    }

    /// The same for the others.
    pub(crate) fn room_arguments(self) -> [Argument; 2] {
        [Argument::Room(0), Argument::Room(self.all)]
    }

    /// Where sums lie.
    pub(crate) fn sums(self) -> Argument {
        if self.sums == 0 { Argument::Long(0) } else { Argument::Room(2 * self.all) }
    }

    /// What every query needs before a chain begins; rows of O and dO lie on so many bytes.
    pub(crate) fn delta(self, p: &AttentionProblem, align: u64, chip: &Chip) -> Plan {
        let lanes = p.dv.div_ceil(8).next_power_of_two().min(32);
        let numbers = [("DV", p.dv), ("ALIGN", align), ("LANES", lanes), ("SUMS", self.sums)];
        let mut defines = vec![("DTYPE", dtype_code(p.dtype))];
        defines.extend(numbers.map(|(name, value)| (name, value as i64)));
        defines.extend([packed_fact(p), ("PAD", self.block as i64)]);
        let mut arguments = [slot::OUT, slot::GRAD, slot::LSE].map(Argument::Pointer).to_vec();
        arguments.extend(self.room_arguments());
        arguments.push(self.sums());
        arguments.extend([p.b, p.h, p.sq, self.room].map(int));
        arguments.extend([p.o_strides(), p.o_strides()].map(strides).concat());
        arguments.push(if p.packed.is_some() { Argument::Pointer(slot::OFFSETS_Q) } else { NOTHING });
        arguments.push(int(p.stretches()[1]));
        Plan {
            source: Source { entry: "delta", text: include_str!("delta.cu"), headers: &HEADERS, defines },
            threads: THREADS as u32,
            shared: 0,
            grid: Grid::Blocks(self.all.div_ceil(THREADS / lanes)),
            arguments,
            overlap: chip.capability.0 >= 9,
        }
    }

    /// The numbers of a main kernel.
    pub(crate) fn numbers(self, p: &AttentionProblem, chip: &Chip) -> Vec<Argument> {
        let mut numbers = [p.b, p.h, p.group(), p.sq, p.sk, self.room].map(int).to_vec();
        numbers.extend(window(p));
        numbers.push(int(band(p, chip)));
        numbers.extend(floats(p));
        numbers
    }
}

/// How Q, K, V and O lie: from one batch, head and row to the next.
pub(crate) fn all_strides(p: &AttentionProblem) -> Vec<Argument> {
    [p.q_strides(), p.k_strides(), p.v_strides(), p.o_strides()].map(strides).concat()
}

/// How many heads of K go together: one, or, where causal tiles differ in length, so many that their tiles fill the chip
/// four times, and as many each time.
fn band(p: &AttentionProblem, chip: &Chip) -> u64 {
    if !p.causal {
        return 1;
    }
    let (all, tall) = (p.b * p.hkv, p.sk.div_ceil(128));
    let most = (4 * u64::from(chip.multiprocessors)).div_ceil(tall).min(all);
    all.div_ceil(all.div_ceil(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention_grad::AttentionGrad;
    use warplap_core::op::Op;

    #[test]
    fn heads_go_together_where_tiles_differ_in_length() {
        let of = |text: &str| band(&AttentionGrad::parse(text).unwrap().0, &Chip::h200());
        assert_eq!(of("b=2,h=16,sq=4096,d=128"), 1);
        assert_eq!(of("b=2,h=16,sq=4096,d=128,causal=true"), 16);
        assert_eq!(of("b=2,h=32,hkv=8,sq=2048,d=128,causal=true"), 16);
        assert_eq!((of("h=3,sq=64,d=64,causal=true"), of("h=1,sq=1000000,d=64,causal=true")), (3, 1));
    }

    #[test]
    fn every_query_of_every_block_has_its_numbers() {
        let p = AttentionGrad::parse("b=2,h=3,sq=65,d=40,dv=24,dtype=f16").unwrap().0;
        let chain = Chain::new(&p, 64, 64);
        assert_eq!((chain.padded, chain.need()), (128, Need { words: 2 * 3 * 128 * 66, zeros: 0 }));
        let delta = chain.delta(&p, 16, &Chip::h200());
        assert_eq!(delta.grid, Grid::Blocks(2 * 3 * 128 / 64));
        assert_eq!(delta.arguments[3..6], [Argument::Room(0), Argument::Room(768), Argument::Room(1536)]);
        // Two blocks for 65 rows and one more for each of four sequences.
        let p = AttentionGrad::parse("b=4,h=3,sq=40,d=40,dtype=f16,tq=65").unwrap().0;
        let chain = Chain::new(&p, 64, 0);
        assert_eq!((chain.padded, chain.need()), (64, Need { words: 3 * 6 * 64 * 2, zeros: 0 }));
        assert_eq!(chain.delta(&p, 16, &Chip::h200()).grid, Grid::Blocks(3 * 6 * 64 / 32));
    }
}
