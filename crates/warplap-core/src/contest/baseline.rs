//! Yardsticks: who is raced at its default however low its priority, so that a report can say what the winner gained.

use crate::candidates::variant::Priority;
use crate::search::Arm;

/// Lifts the default config of the named variants into the first tier, behind everybody else's default: by then a slow
/// reference is outpaced by its first launch.
pub(crate) fn lift(arms: &mut Vec<Arm>, is_baseline: impl Fn(&str) -> bool) {
    let mut lifted = Vec::new();
    for arm in arms.iter_mut().filter(|a| a.priority != Priority::High && is_baseline(&a.variant)) {
        if let Some(mut first) = arm.take_first() {
            first.priority = Priority::High;
            lifted.push(first);
        }
    }
    arms.retain(|a| !a.is_empty());
    arms.extend(lifted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::tests::arm;

    #[test]
    fn a_yardsticks_default_is_in_the_first_tier_and_nothing_is_there_twice() {
        let mut arms =
            vec![arm("fast", Priority::High, 2), arm("reference", Priority::Low, 1), arm("slow", Priority::Low, 3)];
        let all: u64 = arms.iter().map(Arm::len).sum();
        lift(&mut arms, |id| id != "fast");
        let tiers: Vec<_> = arms.iter().map(|a| (a.variant.as_str(), a.priority, a.len())).collect();
        let expected = [
            ("fast", Priority::High, 2),
            ("slow", Priority::Low, 2),
            ("reference", Priority::High, 1),
            ("slow", Priority::High, 1),
        ];
        assert_eq!(tiers, expected);
        assert_eq!(arms.iter().map(Arm::len).sum::<u64>(), all);
    }
}
