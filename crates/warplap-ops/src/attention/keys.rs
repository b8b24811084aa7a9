//! Which keys a batch has and where they lie: page numbers and lengths come in, as they were given; keys that are there
//! go out. Whatever the numbers are, nobody is sent outside of the pools.

use std::ops::Range;

use warplap_core::array::Array;

use super::{AttentionProblem, Strides, gather, slot};

/// Pools of pages that K and V are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Paged {
    /// Keys of a page.
    pub page: u64,
    /// Pages of a pool.
    pub pages: u64,
}

/// Pages of a pool that no batch names.
const SPARE: u64 = 3;

/// So many pages that every batch has its own, and a few more.
pub(super) fn usual_pages(batches: u64, entries: u64) -> u64 {
    batches * entries + SPARE
}

/// How many keys batches are drawn with, in some order: all, none, and anything between; one batch alone has three
/// quarters. They are the same at every drawing, so that the work is known before.
pub(super) fn lengths(p: &AttentionProblem) -> impl Iterator<Item = u64> + use<> {
    let (batches, sk) = (p.b, p.sk);
    // Steps of the golden section are spread evenly, however many there are.
    let between = move |i: u64| 1 + ((i as f64 * 0.618_033_988_749_895).fract() * sk as f64) as u64;
    (0..batches).map(move |i| match i {
        _ if batches == 1 => sk - sk / 4,
        0 => sk,
        1 => 0,
        _ => between(i).min(sk),
    })
}

/// Page numbers, where the problem has pages: none twice while there are enough, and one entry that names none.
pub(super) fn drawn_table(p: &AttentionProblem, rng: &mut fastrand::Rng) -> Array {
    let Some(Paged { pages, .. }) = p.paged else { return Array::none() };
    let mut numbers: Vec<i32> = (0..pages as i32).collect();
    rng.shuffle(&mut numbers);
    let mut table: Vec<i32> = numbers.iter().copied().cycle().take((p.b * p.entries()) as usize).collect();
    if table.len() > 1 {
        let nobody = rng.usize(..table.len());
        table[nobody] = -1;
    }
    Array::I32(table)
}

/// Lengths, where the problem has some, in random order.
pub(super) fn drawn_lengths(p: &AttentionProblem, rng: &mut fastrand::Rng) -> Array {
    if !p.lengths {
        return Array::none();
    }
    let mut drawn: Vec<i32> = lengths(p).map(|n| n as i32).collect();
    rng.shuffle(&mut drawn);
    Array::I32(drawn)
}

/// How many keys a batch has that says a number.
pub(super) fn clamped(length: i32, sk: usize) -> usize {
    usize::try_from(length).unwrap_or(0).min(sk)
}

/// The page that a number names, where there is one.
pub(super) fn page_of(number: i32, pages: usize) -> Option<usize> {
    usize::try_from(number).ok().filter(|page| *page < pages)
}

/// The keys of all batches, for answers.
pub(super) struct Keys {
    paged: Option<Paged>,
    table: Vec<f64>,
    lengths: Vec<f64>,
    sk: usize,
}

impl Keys {
    pub(super) fn of(p: &AttentionProblem, inputs: &[Array]) -> Self {
        let values = |is: bool, at: usize| if is { inputs[at].to_f64() } else { Vec::new() };
        let (table, lengths) = (values(p.paged.is_some(), slot::TABLE), values(p.lengths, slot::LENGTHS));
        Keys { paged: p.paged, table, lengths, sk: p.sk as usize }
    }

    /// Keys of a batch.
    pub(super) fn len(&self, batch: usize) -> usize {
        self.lengths.get(batch).map_or(self.sk, |length| clamped(*length as i32, self.sk))
    }

    /// Where a key lies: its batch or page, and its place there. `None` where its page is none.
    pub(super) fn place(&self, batch: usize, key: usize) -> Option<(usize, usize)> {
        let Some(Paged { page, pages }) = self.paged else { return Some((batch, key)) };
        let (page, entry) = (page as usize, key / page as usize);
        let number = self.table[batch * self.sk.div_ceil(page) + entry] as i32;
        page_of(number, pages as usize).map(|at| (at, key % page))
    }

    /// One head of K or V, key by key; what is nowhere is zeros.
    pub(super) fn gather(
        &self,
        from: &[f64],
        strides: Strides,
        [batch, head]: [usize; 2],
        rows: Range<usize>,
        width: usize,
    ) -> Vec<f64> {
        if self.paged.is_none() {
            return gather(from, strides, [batch, head], rows, width);
        }
        let mut rows = vec![0f64; self.sk * width];
        for (key, row) in rows.chunks_exact_mut(width).enumerate() {
            if let Some((page, at)) = self.place(batch, key) {
                row.copy_from_slice(&from[page * strides.batch + head * strides.head + at * strides.row..][..width]);
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::Attention;
    use super::*;
    use warplap_core::op::Op;

    #[test]
    fn numbers_that_name_nothing_lead_nowhere() {
        assert_eq!(
            [-1, 0, 3, 4, i32::MAX, i32::MIN].map(|n| page_of(n, 4)),
            [None, Some(0), Some(3), None, None, None]
        );
        assert_eq!([-7, 0, 5, 9, 10, i32::MAX].map(|n| clamped(n, 9)), [0, 0, 5, 9, 9, 9]);
    }

    #[test]
    fn a_drawing_has_pages_of_its_own_and_one_that_is_none() {
        let p = Attention::parse("b=3,h=1,sq=1,sk=70,d=2,page=16,lengths=true").unwrap();
        assert_eq!((p.entries(), p.pieces()), (5, [18, 16]));
        let inputs = Attention::draw(&p, &mut fastrand::Rng::with_seed(3));
        let mut table: Vec<i32> = inputs[slot::TABLE].to_f64().into_iter().map(|x| x as i32).collect();
        table.sort_unstable();
        let (before, all) = (table.len(), table[1..].iter().all(|n| (0..18).contains(n)));
        table.dedup();
        assert_eq!((table[0], table.len(), before, all), (-1, 15, 15, true));
        let keys = Keys::of(&p, &inputs);
        let mut lens = [0, 1, 2].map(|b| keys.len(b));
        lens.sort_unstable();
        assert_eq!((lens[0], lens[2]), (0, 70));
    }
}
