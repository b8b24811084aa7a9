//! The order in which axes are set: one that leaves little open at each step, so that few states are told apart.

use super::Space;
use super::program::Parts;

/// A value made of several axes takes fewer values than they have settings: `x * y` over powers of two, say. The
/// exponent is a guess that ordered all spaces of the tests well.
const SHARED: f64 = 0.8;

/// The share of settings a rule is taken to leave.
const LEAVES: f64 = 0.5;

/// Groups of at most this many axes are ordered exactly: 2¹⁰ subsets take some 0.1 ms.
const EXACT: usize = 10;

/// The axes that have a choice, outermost first. Axes that no rule connects are kept together, and within such a group
/// the order is the one whose estimated number of states is least.
pub(super) fn order(space: &Space) -> Vec<usize> {
    let axes = space.axes();
    let sizes: Vec<f64> = axes.iter().map(|a| a.values().len() as f64).collect();
    let free = |axis: &usize| axes[*axis].values().len() != 1;
    let all = (0..axes.len()).filter(free);
    if axes.len() > 127 {
        return all.collect();
    }
    let parts = Parts::new(space);
    let mut groups: Vec<u128> = all.map(|axis| 1u128 << axis).collect();
    for test in &parts.tests {
        let mask = parts.axes[*test as usize];
        let joined = groups.iter().filter(|g| **g & mask != 0).fold(0, |all, g| all | g);
        groups.retain(|g| *g & mask == 0);
        groups.extend((joined != 0).then_some(joined));
    }
    // Large groups first: the small ones become blocks that are copied.
    groups.sort_by_key(|g| (std::cmp::Reverse(g.count_ones()), g.trailing_zeros()));
    groups.into_iter().flat_map(|group| Estimate::of(&parts, &sizes, group).best()).collect()
}

/// What decides the order of one group.
struct Estimate<'p> {
    sizes: &'p [f64],
    group: Vec<usize>,
    /// Values that rules are made of: the axes they depend on, those of everything made of them, and how many values
    /// they take.
    values: Vec<(u128, u128, f64)>,
    tests: Vec<u128>,
}

impl<'p> Estimate<'p> {
    fn of(parts: &Parts, sizes: &'p [f64], group: u128) -> Self {
        let mut used = vec![0u128; parts.axes.len()];
        for (register, inputs) in parts.inputs.iter().enumerate() {
            inputs.iter().for_each(|input| used[*input as usize] |= parts.axes[register]);
        }
        let number = |mask: u128| (0..sizes.len()).filter(move |a| mask >> a & 1 == 1);
        let values = |mask: u128| {
            let product: f64 = number(mask).map(|a| sizes[a]).product();
            if mask.count_ones() == 1 { product } else { product.powf(SHARED) }
        };
        let inside = |mask: &u128| *mask & group != 0;
        let own = parts.axes.iter().zip(&used).filter(|(mask, used)| inside(mask) && *used & !**mask != 0);
        Estimate {
            sizes,
            group: number(group).collect(),
            values: own.map(|(mask, used)| (*mask, *used, values(*mask))).collect(),
            tests: parts.tests.iter().map(|t| parts.axes[*t as usize]).filter(inside).collect(),
        }
    }

    /// States that have to be told apart when these axes are set.
    fn states(&self, set: u128) -> f64 {
        let open = |v: &&(u128, u128, f64)| v.0 & !set == 0 && v.1 & !set != 0;
        let (mut text, mut open_axes) = (1.0, 0);
        for value in self.values.iter().filter(open) {
            text *= value.2;
            open_axes |= value.0;
        }
        let settings: f64 = self.group.iter().filter(|a| open_axes >> **a & 1 == 1).map(|a| self.sizes[*a]).product();
        let decided = self.tests.iter().filter(|t| **t & !set == 0 && **t & open_axes != 0).count();
        f64::min(text, settings) * LEAVES.powi(decided.min(8) as i32)
    }

    fn best(&self) -> Vec<usize> {
        match self.group.len() {
            0 | 1 => self.group.clone(),
            2..=EXACT => self.exact(),
            _ => {
                // The cheapest of the greedy orders, one from each first axis, and the order as given.
                let greedy = self.group.iter().map(|first| self.greedy(*first));
                let orders = std::iter::once(self.group.clone()).chain(greedy);
                orders.min_by(|a, b| self.cost(a).total_cmp(&self.cost(b))).unwrap_or_default()
            }
        }
    }

    /// The cheapest order of all, subset by subset.
    fn exact(&self) -> Vec<usize> {
        let axes = self.group.len();
        let mask =
            |subset: usize| (0..axes).filter(|i| subset >> i & 1 == 1).fold(0, |m, i| m | 1u128 << self.group[i]);
        // By subset: what it costs to set it, and the axis set last.
        let mut least = vec![(f64::INFINITY, 0); 1 << axes];
        least[0].0 = 0.0;
        for subset in 0..least.len() - 1 {
            let states = self.states(mask(subset));
            for i in (0..axes).filter(|i| subset >> i & 1 == 0) {
                let cost = least[subset].0 + states * self.sizes[self.group[i]];
                let with = &mut least[subset | 1 << i];
                if cost < with.0 {
                    *with = (cost, i);
                }
            }
        }
        let (mut order, mut subset) = (Vec::new(), least.len() - 1);
        while subset != 0 {
            let last = least[subset].1;
            order.push(self.group[last]);
            subset &= !(1 << last);
        }
        order.reverse();
        order
    }

    fn cost(&self, order: &[usize]) -> f64 {
        let mut set = 0u128;
        order
            .iter()
            .map(|axis| {
                let tried = self.states(set) * self.sizes[*axis];
                set |= 1 << axis;
                tried
            })
            .sum()
    }

    fn greedy(&self, first: usize) -> Vec<usize> {
        let (mut order, mut set) = (vec![first], 1u128 << first);
        while order.len() < self.group.len() {
            let left = self.group.iter().copied().filter(|a| set >> a & 1 == 0);
            let after = |axis: usize| (self.states(set | 1 << axis), self.sizes[axis]);
            let next = left.min_by(|a, b| {
                let (a, b) = (after(*a), after(*b));
                a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
            });
            let Some(next) = next else { break };
            order.push(next);
            set |= 1 << next;
        }
        order
    }
}
