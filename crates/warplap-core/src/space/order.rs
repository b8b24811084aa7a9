//! The order in which axes are set: one that leaves little open at each step, so that few states are told apart.

use super::Space;

/// The axes that have a choice, outermost first. Axes that no rule connects are kept together, and within such a group
/// the order is the one whose estimated number of states is least.
pub(super) fn order(space: &Space) -> Vec<usize> {
    let axes = space.axes();
    let free = |axis: &usize| axes[*axis].values().len() != 1;
    let rules: Vec<Vec<usize>> =
        space.rules().iter().map(|r| space.read_by(r).into_iter().filter(free).collect()).collect();
    let mut groups = groups(axes.len(), &rules);
    groups.iter_mut().for_each(|g| g.retain(free));
    groups.retain(|g| !g.is_empty());
    // Large groups first: the small ones become blocks that are copied.
    groups.sort_by_key(|g| std::cmp::Reverse(g.len()));
    groups.into_iter().flat_map(|group| best(group, &rules, &|axis| axes[axis].values().len())).collect()
}

/// Axes that a chain of rules connects.
fn groups(axes: usize, rules: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut group: Vec<usize> = (0..axes).collect();
    for rule in rules {
        for pair in rule.windows(2) {
            let (from, to) = (group[pair[1]], group[pair[0]]);
            group.iter_mut().filter(|g| **g == from).for_each(|g| *g = to);
        }
    }
    let mut found: Vec<Vec<usize>> = vec![Vec::new(); axes];
    (0..axes).for_each(|axis| found[group[axis]].push(axis));
    found
}

/// The cheapest of the greedy orders, one from each first axis.
fn best(group: Vec<usize>, rules: &[Vec<usize>], size: &dyn Fn(usize) -> usize) -> Vec<usize> {
    let rules: Vec<&Vec<usize>> = rules.iter().filter(|r| r.iter().any(|a| group.contains(a))).collect();
    let orders = group.iter().map(|first| greedy(*first, &group, &rules, size));
    orders.min_by(|a, b| a.0.total_cmp(&b.0)).map(|o| o.1).unwrap_or(group)
}

fn greedy(first: usize, group: &[usize], rules: &[&Vec<usize>], size: &dyn Fn(usize) -> usize) -> (f64, Vec<usize>) {
    // States after these axes: all settings of those that some rule still waits with.
    let states = |set: &[usize]| -> f64 {
        let open = |axis: &&usize| rules.iter().any(|r| r.contains(axis) && r.iter().any(|a| !set.contains(a)));
        set.iter().filter(open).map(|a| size(*a) as f64).product()
    };
    let (mut set, mut cost) = (vec![first], size(first) as f64);
    while set.len() < group.len() {
        let before = states(&set);
        let next = group.iter().copied().filter(|a| !set.contains(a)).min_by(|a, b| {
            let after = |axis: usize| {
                let mut with = set.clone();
                with.push(axis);
                (states(&with), size(axis))
            };
            let (a, b) = (after(*a), after(*b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        });
        let Some(next) = next else { break };
        cost += before * size(next) as f64;
        set.push(next);
    }
    (cost, set)
}
