//! What the plans of attention share: facts of the problem, strides, what a kernel of tensor cores takes at all.

use warplap_core::dtype::DType;
use warplap_cuda::{Chip, Layers, TensorMapSpec, dtype_code};

use crate::attention::{AttentionProblem, Corner, Mask, Strides, slot};
use crate::cuda::plan::{Argument, int};
use crate::philox::Dropout;

/// Kernels divide what is added by the scale, unless it is so small (or negative) that scores are scaled one by one.
const SMALL_SCALE: f32 = 1e-20;

/// The widest heads whose sums registers hold.
const MOST: u64 = 256;

/// A pointer that a kernel has a place for and the problem has nothing for.
pub(crate) const NOTHING: Argument = Argument::Long(0);

/// A map of four dimensions with boxes of 64 elements by so many rows.
pub(crate) fn map(
    buffer: usize,
    p: &AttentionProblem,
    [wide, rows, heads, batches]: [u64; 4],
    s: Strides,
    lines: u64,
) -> Argument {
    let [batch, head, row] = [s.batch, s.head, s.row].map(|elements| elements as u64);
    let spec = TensorMapSpec {
        dtype: p.dtype,
        inner: wide,
        outer: rows,
        pitch: row,
        layers: Layers::Heads { counts: [heads, batches], strides: [head, batch] },
        block: [64, lines as u32],
        swizzle: 128,
        promote: true,
        tf32: false,
    };
    Argument::Map(buffer, spec)
}

/// Why a problem is nothing for kernels of tensor cores, if so.
pub(crate) fn no_tensor_cores(p: &AttentionProblem, chip: &Chip) -> Option<&'static str> {
    if chip.capability.0 < 8 {
        Some("needs asynchronous copies (sm_80 or newer)")
    } else if !matches!(p.dtype, DType::F16 | DType::Bf16) {
        Some("f16 and bf16 only")
    } else if p.d.max(p.dv) > MOST {
        Some("heads of at most 256 elements")
    } else if p.alibi && p.window.is_some() && !p.causal {
        Some("distances count from the last key a query sees: with a window only where it is causal")
    } else if [p.sq, p.sk, p.b * p.h, p.stretches()[1], p.pieces()[1]].into_iter().any(|n| n > i32::MAX as u64 / 2) {
        Some("sizes must fit 30 bits")
    } else {
        None
    }
}

/// Whether tiles of 128 queries leave multiprocessors idle.
pub(crate) fn is_short(p: &AttentionProblem, chip: &Chip) -> bool {
    let tiles = p.packed.map_or(p.sq.div_ceil(128) * p.b, |packed| packed.tq.div_ceil(128));
    tiles * p.h <= u64::from(chip.multiprocessors)
}

/// Bytes that every row of Q, K, V and O lies on, 16 at the most: bases do, and strides are multiples of a row.
pub(crate) fn align(p: &AttentionProblem) -> u64 {
    let together = (p.d | p.dv) * p.dtype.bytes() as u64;
    16.min(1 << together.trailing_zeros())
}

/// Facts of the problem that every kernel is compiled with.
pub(crate) fn facts(p: &AttentionProblem) -> Vec<(&'static str, i64)> {
    let mut facts = vec![("DTYPE", dtype_code(p.dtype)), ("D", p.d as i64), ("DV", p.dv as i64)];
    let flags = [
        ("CAUSAL", p.causal || p.window.is_some()),
        ("WINDOW", p.window.is_some()),
        ("ALIBI", p.alibi),
        ("SOFTCAP", p.softcap().is_some()),
        ("DROPOUT", p.dropout() > 0.0),
    ];
    facts.extend(flags.into_iter().filter(|(_, is)| *is).map(|(name, _)| (name, 1)));
    if p.scale() <= SMALL_SCALE {
        facts.push(("NEGATIVE", 1));
    }
    if p.lse {
        facts.push(("LSE", 1));
    }
    facts
}

/// The facts of a mask that threads read by themselves; pairs where every row begins on one.
pub(crate) fn mask_facts(p: &AttentionProblem) -> Vec<(&'static str, i64)> {
    match p.mask {
        Mask::None => Vec::new(),
        Mask::Add if p.sk.is_multiple_of(2) => vec![("MASK", 1), ("MASK_PAIRS", 1)],
        Mask::Add => vec![("MASK", 1)],
        Mask::Bool if p.sk.is_multiple_of(2) => vec![("MASK", 2), ("MASK_PAIRS", 1)],
        Mask::Bool => vec![("MASK", 2)],
        // Blocks that nobody looks at are left out, and the others know of no mask.
        Mask::Tiles(_) => Vec::new(),
    }
}

/// The fact of a mask as kernels know it that read single elements.
pub(crate) fn mask_code(p: &AttentionProblem) -> i64 {
    match p.mask {
        Mask::None => 0,
        Mask::Add => 1,
        Mask::Bool | Mask::Tiles(_) => 2,
    }
}

/// The power of two that an entry of the mask has queries and keys.
pub(crate) fn square_fact(p: &AttentionProblem) -> (&'static str, i64) {
    ("SQUARE", p.mask.tiles().map_or(0, |tiles| i64::from(tiles.shift())))
}

/// Keys of a page, where K and V lie in pages.
pub(crate) fn page_fact(p: &AttentionProblem) -> (&'static str, i64) {
    ("PAGE", p.paged.map_or(0, |paged| paged.page as i64))
}

/// Whether batches have numbers of keys of their own, and whether the diagonal ends at the last of these.
pub(crate) fn length_fact(p: &AttentionProblem) -> (&'static str, i64) {
    let bottom = p.corner == Corner::Bottom;
    ("LENGTHS", if p.lengths { 1 + i64::from(bottom) } else { 0 })
}

/// Whether sequences lie one behind the other, and whether the diagonal ends at each one's last key.
pub(crate) fn packed_fact(p: &AttentionProblem) -> (&'static str, i64) {
    let bottom = p.corner == Corner::Bottom;
    ("PACKED", if p.packed.is_some() { 1 + i64::from(bottom) } else { 0 })
}

/// Rows of all sequences, for kernels that follow offsets.
pub(crate) fn totals(p: &AttentionProblem) -> [Argument; 2] {
    [p.stretches()[1], p.pieces()[1]].map(int)
}

/// Tiles of so many queries in one head of all batches; of sequences that are packed, as many as there may be.
pub(crate) fn tiles(p: &AttentionProblem, rows: u64) -> u64 {
    p.packed.map_or(p.sq.div_ceil(rows) * p.b, |packed| packed.tq / rows + p.b)
}

/// Why a kernel whose tiles are of one length stands aside, if so.
pub(crate) fn no_sequences(p: &AttentionProblem) -> Option<&'static str> {
    p.packed.is_some().then_some("sequences lie one behind the other: kernels that follow offsets do that")
}

/// Why a kernel of tiles stands aside, if so.
pub(crate) fn no_tiles(p: &AttentionProblem) -> Option<&'static str> {
    (p.is_uneven() && p.packed.is_none()).then_some("keys in pages or of unequal lengths: decoding kernels do that")
}

/// Below which half-word weights are dropped.
pub(crate) fn below(p: &AttentionProblem) -> u32 {
    Dropout::new(p.dropout()).below
}

/// What decides which weights are dropped, the seed in a slot: the last parameters of kernels of tiles.
pub(crate) fn drops(p: &AttentionProblem, seed: usize) -> [Argument; 2] {
    [Argument::Pointer(seed), Argument::Int(below(p) as i32)]
}

/// A number of 32 bits is what it consists of.
fn float(value: f32) -> Argument {
    Argument::Int(value.to_bits() as i32)
}

/// The scale, and what scores stay below, where they do.
pub(crate) fn floats(p: &AttentionProblem) -> [Argument; 2] {
    [float(p.scale()), float(p.softcap().unwrap_or(1.0))]
}

/// The furthest key before a query and the furthest behind it, counted from the query's number. Where nothing ends what
/// a query sees, the second is the key beside it, from which distances count.
pub(crate) fn window(p: &AttentionProblem) -> [Argument; 2] {
    let sight = p.sight();
    let (lower, upper) = match (p.window.is_some(), p.causal) {
        (true, _) => (sight.lower, sight.upper),
        (false, true) => (0, sight.upper),
        (false, false) => (0, sight.shift),
    };
    [lower, upper].map(|at| Argument::Int(at as i32))
}

/// The same for kernels that ask about every pair: both ends, however far, and the key beside the first query.
pub(crate) fn sight(p: &AttentionProblem) -> [Argument; 3] {
    let (sight, far) = (p.sight(), 1 << 30);
    [sight.lower, sight.upper, sight.shift].map(|at| Argument::Int(at.clamp(-far, far) as i32))
}

/// The numbers between the pointers and the strides of a kernel of tiles.
pub(crate) fn numbers(p: &AttentionProblem, chip: &Chip) -> Vec<Argument> {
    numbers_with(p, band(p, chip))
}

/// The same where blocks take tiles by a counter: a part of the heads with few tiles of its own would be the last one,
/// with long tiles in it, so parts are alike where a power of two makes them so.
pub(crate) fn numbers_by_counter(p: &AttentionProblem, chip: &Chip) -> Vec<Argument> {
    numbers_with(p, band_by_counter(p, chip))
}

fn numbers_with(p: &AttentionProblem, band: u64) -> Vec<Argument> {
    let mut numbers = [p.b, p.h, p.group(), p.sq, p.sk].map(int).to_vec();
    numbers.extend(window(p));
    numbers.push(int(band));
    numbers.extend(floats(p));
    numbers
}

/// How many heads' tiles go together. A mask all batches share is read once for them; where causal tiles differ in
/// length, as many heads as have keys and values in half of L2, the longest tiles of all of them first, and as many
/// each time: a few heads that are left over would have too few tiles for all multiprocessors.
fn band(p: &AttentionProblem, chip: &Chip) -> u64 {
    if p.mask.is_by_pair() && p.b > 1 && p.masks()[0] == 1 {
        return p.b;
    }
    if !p.causal {
        return 1;
    }
    let (all, most) = (p.b * p.h, most_heads(p, chip));
    all.div_ceil(all.div_ceil(most)).next_multiple_of(p.group()).min(most)
}

/// Heads whose keys and values half of L2 holds.
fn most_heads(p: &AttentionProblem, chip: &Chip) -> u64 {
    let head = p.sk * (p.d + p.dv) * p.dtype.bytes() as u64;
    (chip.l2 / 2 / head * p.group()).clamp(1, p.b * p.h)
}

/// The band of [`numbers_by_counter`].
fn band_by_counter(p: &AttentionProblem, chip: &Chip) -> u64 {
    let (all, most) = (p.b * p.h, most_heads(p, chip));
    let even = p.group() << (most / p.group()).max(1).ilog2();
    if p.causal && !p.mask.is_by_pair() && even < most && all.is_multiple_of(even) { even } else { band(p, chip) }
}

/// From one batch, head and row to the next.
pub(crate) fn strides(s: Strides) -> [Argument; 3] {
    [s.batch, s.head, s.row].map(|elements| Argument::Long(elements as u64))
}

/// Those of the mask: none from one batch or head to the next where they share one.
pub(crate) fn mask_strides(p: &AttentionProblem) -> [Argument; 3] {
    strides(p.mask_strides())
}

/// Those of Q, K, V, O and the mask: the last parameters of kernels of plain pointers.
pub(crate) fn all_strides(p: &AttentionProblem) -> Vec<Argument> {
    let mut all = [p.q_strides(), p.k_strides(), p.v_strides(), p.o_strides()].map(strides).concat();
    all.extend(mask_strides(p));
    all
}

/// Q, K, V, the mask, slopes, O and the log-sum-exps: the first parameters of kernels of plain pointers.
pub(crate) fn pointers() -> Vec<Argument> {
    [slot::Q, slot::K, slot::V, slot::MASK, slot::SLOPES, slot::OUT, slot::LSE].map(Argument::Pointer).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::Attention;
    use warplap_core::op::Op;

    fn problem(text: &str) -> AttentionProblem {
        Attention::parse(text).unwrap()
    }

    #[test]
    fn rows_lie_on_what_both_widths_divide() {
        let on = |text: &str| align(&problem(text));
        assert_eq!(on("h=2,sq=9,d=64,dtype=f16"), 16);
        assert_eq!(on("h=2,sq=9,d=64,dv=20,dtype=bf16"), 8);
        assert_eq!(on("h=2,sq=9,d=6,dtype=f16"), 4);
        assert_eq!((on("h=2,sq=9,d=64,dv=7,dtype=f16"), on("h=1,sq=1,d=1,dtype=f16")), (2, 2));
    }

    #[test]
    fn scales_that_nothing_is_divided_by_are_told_apart() {
        let has_negative =
            |scale| facts(&problem("h=1,sq=2,d=64,dtype=f16").with_scale(scale)).contains(&("NEGATIVE", 1));
        assert_eq!([0.125, 1e-10, 1e-30, 0.0, -0.5].map(has_negative), [false, false, true, true, true]);
    }

    #[test]
    fn heads_go_together_where_they_share_something() {
        let chip = Chip::h200();
        let of = |text: &str| band(&problem(text), &chip);
        assert_eq!(of("b=2,h=16,sq=4096,d=128,dtype=bf16"), 1);
        // Two megabytes a head, in half of fifty: twelve heads at the most, 64 in six parts and 32 in three.
        assert_eq!(of("b=4,h=16,sq=4096,d=128,dtype=bf16,causal=true"), 11);
        assert_eq!(of("b=2,h=16,sq=4096,d=128,dtype=bf16,causal=true"), 11);
        assert_eq!(of("b=4,h=16,hkv=4,sq=4096,d=128,dtype=bf16,causal=true"), 32);
        assert_eq!(of("b=1,h=8,sq=512,d=64,dtype=f16,causal=true"), 8);
        assert_eq!(of("b=3,h=8,sq=512,d=64,dtype=f16,mask=add"), 3);
        assert_eq!(of("h=1,sq=1,sk=1000000,d=256,dtype=f16,causal=true"), 1);
        let by_counter = |text: &str| band_by_counter(&problem(text), &chip);
        assert_eq!(by_counter("b=2,h=16,sq=4096,d=128,dtype=bf16"), 1);
        assert_eq!(by_counter("b=2,h=16,sq=4096,d=128,dtype=bf16,causal=true"), 8);
        assert_eq!(by_counter("b=2,h=8,sq=4096,d=256,dtype=bf16,causal=true"), 4);
        assert_eq!(by_counter("h=32,hkv=8,sq=8192,d=128,dtype=bf16,causal=true"), 16);
        assert_eq!(by_counter("b=1,h=8,sq=512,d=64,dtype=f16,causal=true"), 8);
        assert_eq!(by_counter("b=3,h=7,sq=4096,d=128,dtype=bf16,causal=true"), 11);
    }
}
