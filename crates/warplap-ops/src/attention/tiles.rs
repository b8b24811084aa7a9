//! Masks by tiles: which squares of queries and keys are looked at. A map with a byte for every square comes in; the
//! kernels of tiles leave out those whose byte is zero.

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::problem::ProblemError;

use super::{AttentionProblem, Mask};

/// Squares that are looked at or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiles {
    /// Queries and keys of a square: a power of two from 32 to 1024.
    pub side: u64,
    /// How many of a hundred squares are looked at, about: what a race draws. Answers follow the map alone.
    pub live: u64,
}

/// A square where none is said: what FlexAttention takes too.
const USUAL_SIDE: u64 = 128;
/// Squares of a hundred where nothing is said.
const USUAL_LIVE: u64 = 50;

/// Shares that races are told apart by.
const SHARES: [u64; 9] = [1, 2, 5, 10, 20, 35, 50, 75, 100];

impl Tiles {
    /// Fields of a request, where its mask is of tiles.
    pub(super) fn said(mask: Mask, side: u64, live: u64) -> Result<Mask, ProblemError> {
        let Mask::Tiles(_) = mask else {
            let beside = "the mask that it speaks of: mask=tiles";
            return match (side, live) {
                (0, 0) => Ok(mask),
                (0, live) => Err(ProblemError::value("live", live, beside)),
                (side, _) => Err(ProblemError::value("tile", side, beside)),
            };
        };
        let or = |value: u64, usual: u64| if value == 0 { usual } else { value };
        let tiles = Tiles { side: or(side, USUAL_SIDE), live: or(live, USUAL_LIVE) };
        if !tiles.side.is_power_of_two() || !(32..=1024).contains(&tiles.side) {
            return Err(ProblemError::value("tile", tiles.side, "a power of two from 32 to 1024"));
        }
        if tiles.live > 100 {
            return Err(ProblemError::value("live", tiles.live, "squares of a hundred that are looked at: 1 to 100"));
        }
        Ok(Mask::Tiles(tiles))
    }

    /// As many of a hundred as are raced together with it.
    pub(super) fn rounded(self) -> Self {
        let near = SHARES.into_iter().find(|share| *share >= self.live).unwrap_or(100);
        Tiles { live: near, ..self }
    }

    /// The share of a problem's pairs, and of its keys, that a race looks at at the least: where squares may be seen in
    /// part, those that are drawn may have fewer pairs than others.
    pub(super) fn share(self, p: &AttentionProblem) -> f64 {
        let whole = [p.sq, p.sk].iter().all(|n| n.is_multiple_of(self.side)) && !p.causal && p.window.is_none();
        self.live as f64 / if whole { 100.0 } else { 200.0 }
    }

    /// The power of two that a square has queries.
    pub(crate) fn shift(self) -> u32 {
        self.side.trailing_zeros()
    }
}

impl Default for Tiles {
    fn default() -> Self {
        Tiles { side: USUAL_SIDE, live: USUAL_LIVE }
    }
}

/// Squares of one mask with a pair that causality and window leave to be seen.
fn seen_by_place(p: &AttentionProblem, tiles: Tiles) -> Vec<usize> {
    let ([rows, columns], sight, side) = (p.mask_sides().map(|n| n as usize), p.sight(), tiles.side as usize);
    let is_seen = |row: usize, column: usize| {
        let (first, last) = (row * side, ((row + 1) * side).min(p.sq as usize) - 1);
        let (from, to) = (sight.of_query(first).start, sight.of_query(last).end);
        from < ((column + 1) * side).min(p.sk as usize) && to > column * side
    };
    (0..rows * columns).filter(|at| is_seen(at / columns, at % columns)).collect()
}

/// A map in which as many of the squares that can be seen are looked at as the request says, one at the least, and where
/// there are three rows of squares and more those of the middle one are not.
pub(super) fn drawn(p: &AttentionProblem, tiles: Tiles, rng: &mut fastrand::Rng) -> Array {
    let [rows, columns] = p.mask_sides().map(|n| n as usize);
    let middle = |at: &usize| rows > 2 && at / columns == rows / 2;
    let open = seen_by_place(p, tiles);
    // No fewer than work is counted for.
    let wanted = (open.len() * tiles.live as usize).div_ceil(100);
    // Without the middle row where the others have enough.
    let others: Vec<usize> = open.iter().copied().filter(|at| !middle(at)).collect();
    let from = if others.len() >= wanted { others } else { open };
    let masks = p.masks().iter().product::<u64>() as usize;
    let mut map = vec![0.0; masks * rows * columns];
    for mask in 0..masks {
        for at in rng.choose_multiple(from.iter().copied(), wanted) {
            map[mask * rows * columns + at] = 1.0;
        }
    }
    Array::from_f64(DType::Bool, map)
}

/// What a map adds to every score: nothing, or -inf.
pub(super) fn spread(p: &AttentionProblem, tiles: Tiles, map: &Array) -> Vec<f64> {
    let [rows, columns] = p.mask_sides().map(|n| n as usize);
    let (side, masks) = (tiles.side as usize, p.masks().iter().product::<u64>() as usize);
    let mut all = Vec::with_capacity(masks * (p.sq * p.sk) as usize);
    for mask in 0..masks {
        for i in 0..p.sq as usize {
            let line = (mask * rows + i / side) * columns;
            let hides = |j: usize| map.at(line + j / side) == 0.0;
            all.extend((0..p.sk as usize).map(|j| if hides(j) { f64::NEG_INFINITY } else { 0.0 }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::{Attention, slot};
    use super::*;
    use warplap_core::op::Op;
    use warplap_core::problem::Problem;

    #[test]
    fn a_map_has_a_byte_for_every_square_and_hides_whole_ones() {
        let p = Attention::parse("b=2,h=2,sq=70,sk=100,d=4,mask=tiles,tile=32,live=40,over=heads").unwrap();
        assert_eq!((p.mask_sides(), p.mask_len()), ([3, 4], 2 * 3 * 4));
        let inputs = Attention::draw(&p, &mut fastrand::Rng::with_seed(3));
        let Mask::Tiles(tiles) = p.mask else { panic!() };
        let all = spread(&p, tiles, &inputs[slot::MASK]);
        assert_eq!(all.len(), 2 * 70 * 100);
        let seen: Vec<bool> = all.iter().map(|x| *x == 0.0).collect();
        for (h, i, j) in [(0, 0, 0), (0, 31, 31), (0, 69, 99), (1, 0, 32), (1, 64, 96)] {
            let byte = inputs[slot::MASK].at((h * 3 + i / 32) * 4 + j / 32) != 0.0;
            assert_eq!(seen[(h * 70 + i) * 100 + j], byte, "{h} {i} {j}");
        }
        assert!(seen[32 * 100..64 * 100].iter().all(|seen| !seen), "the middle row of squares sees nothing");
        let others = || seen[..32 * 100].iter().chain(&seen[64 * 100..70 * 100]);
        assert!(others().any(|seen| *seen) && others().any(|seen| !seen));
    }

    #[test]
    fn a_race_draws_as_much_as_is_said_of_what_can_be_seen() {
        for (text, wanted) in [
            ("sq=1024,mask=tiles,live=1", 1),
            ("sq=2048,mask=tiles,tile=1024,live=20", 1),
            ("sq=1024,mask=tiles,live=50", 32),
            ("sq=1024,mask=tiles,live=50,causal=true", 18), // of 36
            ("sq=1024,mask=tiles,live=100,window=128", 22), // all: neighbours too
            ("sq=1,sk=4096,mask=tiles,live=10", 4),
        ] {
            let p = Attention::parse(&format!("h=1,d=8,{text}")).unwrap();
            for seed in 0..20 {
                let map = Attention::draw(&p, &mut fastrand::Rng::with_seed(seed))[slot::MASK].to_f64();
                assert_eq!(map.iter().filter(|seen| **seen != 0.0).count(), wanted, "{text}");
            }
        }
    }

    #[test]
    fn squares_are_said_in_full_and_shares_are_raced_together() {
        let p = Attention::parse("h=1,sq=256,d=64,mask=tiles,live=37").unwrap();
        assert_eq!(p.mask, Mask::Tiles(Tiles { side: 128, live: 37 }));
        let text = p.fields().to_string();
        assert!(text.contains("mask=tiles,tile=128,live=37"), "{text}");
        let Mask::Tiles(raced) = p.raced().mask else { panic!() };
        assert_eq!(raced.live, 50);
    }

    #[test]
    fn wrong_squares_are_named() {
        for (text, field) in [
            ("mask=tiles,tile=48", "'tile'"),
            ("mask=tiles,tile=16", "'tile'"),
            ("mask=tiles,tile=2048", "'tile'"),
            ("mask=tiles,live=101", "'live'"),
            ("mask=bool,tile=64", "'tile'"),
            ("live=50", "'live'"),
        ] {
            let said = Attention::parse(&format!("h=1,sq=64,d=8,{text}")).unwrap_err().to_string();
            assert!(said.contains(field), "{text}: {said}");
        }
    }
}
