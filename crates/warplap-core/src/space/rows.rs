//! All legal configs as a table of value numbers: the list for those who want all of it.
//!
//! The axes of a row are packed into as few words as hold them: half a million configs of nine axes are two megabytes,
//! and what takes time is memory nobody has touched yet.

use super::diagram::{Diagram, END};

/// Where an axis' value number lies: the word of a row, its lowest bit, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    word: usize,
    shift: u32,
    mask: u32,
}

/// Every legal config; row `i` is the point with index `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// By axis; `None` for one with a single value.
    places: Vec<Option<Bits>>,
    /// One list a word: its value in every row.
    words: Vec<Vec<u32>>,
    len: usize,
}

impl Rows {
    /// Lists a diagram; `None` when it holds more configs than memory can.
    pub(super) fn of(diagram: &Diagram) -> Option<Rows> {
        let len = usize::try_from(diagram.count()).ok().filter(|n| *n <= isize::MAX as usize / 8)?;
        let levels = packed(&diagram.order.iter().map(|axis| diagram.sizes[*axis]).collect::<Vec<_>>());
        let count = levels.last().map_or(0, |place| place.word + 1);
        let mut writer = Writer {
            diagram,
            words: (0..count).map(|_| Vec::with_capacity(len)).collect(),
            written: vec![usize::MAX; diagram.nodes()],
            levels,
        };
        if let Some(root) = diagram.root().filter(|_| count > 0) {
            writer.node(root, 0, 0);
        }
        let mut places = vec![None; diagram.sizes.len()];
        for (axis, place) in diagram.order.iter().zip(&writer.levels) {
            places[*axis] = Some(*place);
        }
        Some(Rows { places, words: writer.words, len })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is legal.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value number of an axis in a row.
    pub fn get(&self, row: usize, axis: usize) -> u16 {
        self.places[axis].map_or(0, |p| (self.words[p.word][row] >> p.shift & p.mask) as u16)
    }

    /// One row as a point.
    pub fn point(&self, row: usize) -> Vec<u16> {
        (0..self.places.len()).map(|axis| self.get(row, axis)).collect()
    }
}

/// Where each of these axes lies, one after the other.
fn packed(sizes: &[usize]) -> Vec<Bits> {
    let (mut word, mut shift) = (0, 0);
    let mut places = Vec::new();
    for size in sizes {
        let bits = usize::BITS - size.saturating_sub(1).leading_zeros();
        if shift + bits > u32::BITS {
            (word, shift) = (word + 1, 0);
        }
        places.push(Bits { word, shift, mask: (1 << bits) - 1 });
        shift += bits;
    }
    places
}

struct Writer<'d> {
    diagram: &'d Diagram,
    /// By level: where its axis lies.
    levels: Vec<Bits>,
    words: Vec<Vec<u32>>,
    /// By node: the first row it was written at.
    written: Vec<usize>,
}

impl Writer<'_> {
    /// Writes all rows behind a node. `above` holds the values of the levels above that lie in the same word.
    fn node(&mut self, node: u32, level: usize, above: u32) {
        let Bits { word, shift, .. } = self.levels[level];
        let start = self.words[word].len();
        let earlier = self.written[node as usize];
        if earlier != usize::MAX {
            // Written before: the block is copied, and what stands above it set anew.
            let rows = self.diagram.configs_behind(node) as usize;
            self.words[word..].iter_mut().for_each(|list| list.extend_from_within(earlier..earlier + rows));
            let own = u32::MAX << shift;
            self.words[word][start..].iter_mut().for_each(|w| *w = *w & own | above);
            return;
        }
        self.written[node as usize] = start;
        let closed = self.levels.get(level + 1).is_none_or(|next| next.word != word);
        let diagram = self.diagram;
        for edge in diagram.edges(node) {
            let value = above | u32::from(edge.value) << shift;
            match edge.child {
                child if !closed => self.node(child, level + 1, value),
                END => self.words[word].push(value),
                child => {
                    self.node(child, level + 1, 0);
                    let (rows, list) = (diagram.configs_behind(child) as usize, &mut self.words[word]);
                    list.resize(list.len() + rows, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Space};

    #[test]
    fn every_row_is_the_point_of_its_index_however_many_words_it_takes() {
        let mut space = Space::single();
        for (name, size) in [("a", 3), ("b", 1), ("c", 40_000), ("d", 2), ("e", 5), ("f", 300), ("g", 300), ("h", 7)] {
            space = space.axis(Axis::ints(name, 0..size));
        }
        let space = ["c % 9999 == a", "f == g", "f % 100 == 0", "e + d < h"]
            .iter()
            .fold(space, |s, rule| s.constrain(rule).unwrap());
        let (rows, diagram) = (space.rows().unwrap(), space.diagram().unwrap());
        assert!(rows.words.len() > 1 && rows.len() as u128 == diagram.count() && rows.len() > 100);
        for row in 0..rows.len() {
            assert_eq!(Some(rows.point(row)), diagram.point(row as u128));
        }
    }
}
