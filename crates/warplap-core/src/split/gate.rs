//! The gate: what each card of a class reaches comes in; how far it is off the median of all, and who may screen for the
//! others, goes out.

use std::collections::BTreeMap;

use crate::model::roofline::Ceilings;

/// A card this far off its class's median, in compute or bandwidth, screens nobody.
pub const OFF: f64 = 0.05;

/// What a card reaches by the names of its ceilings.
pub type Reach = BTreeMap<String, f64>;

/// The numbers that cards are compared by: FLOP/s by type, and bytes a second of memory.
pub fn reach(ceilings: &Ceilings) -> Reach {
    let flops = ceilings.flops.iter().map(|(dtype, flops)| (dtype.to_string(), *flops));
    let memory = ceilings.bandwidth.last().map(|b| ("memory".to_string(), b.rate));
    flops.chain(memory).filter(|(_, value)| value.is_finite() && *value > 0.0).collect()
}

/// How far each card of a class is off the median of all: the largest share over its ceilings. `None` where there is
/// nobody to compare with.
pub fn off(cards: &[Reach]) -> Vec<Option<f64>> {
    let mut of: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in cards.iter().flatten() {
        of.entry(name).or_default().push(*value);
    }
    of.values_mut().for_each(|values| values.sort_by(f64::total_cmp));
    let share = |(name, value): (&String, &f64)| {
        let values = of.get(name.as_str()).filter(|values| values.len() > 1)?;
        let middle = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        Some(value / middle - 1.0)
    };
    cards.iter().map(|card| card.iter().filter_map(share).max_by(|a, b| a.abs().total_cmp(&b.abs()))).collect()
}

/// Who does what for a class: cards by their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    /// Those who race a share each: all within the gate, or the nearest where there is none.
    pub screen: Vec<usize>,
    /// Those who race the finals: the nearest to the median of all.
    pub finals: Vec<usize>,
}

/// The seats of cards: nobody further off the median than `within` screens, and the nearest `finals` have the finals.
/// Whoever has measured nothing cannot be told from a card that is far off.
pub fn seats(cards: &[Reach], within: f64, finals: usize) -> Seats {
    let mut near: Vec<(f64, usize)> =
        off(cards).into_iter().enumerate().filter_map(|(card, off)| Some((off?.abs(), card))).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let pass = near.iter().filter(|(off, _)| *off <= within).count().max(1);
    let first = |count: usize| near.iter().take(count).map(|(_, card)| *card).collect();
    Seats { screen: first(pass), finals: first(finals) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::dtype::DType;
    use crate::model::roofline::Bandwidth;

    fn card(flops: f64, memory: f64) -> Reach {
        let bandwidth =
            vec![Bandwidth { capacity: 1 << 20, rate: 9e12 }, Bandwidth { capacity: u64::MAX, rate: memory }];
        reach(&Ceilings { flops: BTreeMap::from([(DType::F32, flops)]), bandwidth, ..Ceilings::default() })
    }

    #[test]
    fn a_card_off_in_compute_or_in_bandwidth_screens_nobody_and_the_nearest_comes_first() {
        let cards = [card(102.0, 10.0), card(100.0, 10.0), card(70.0, 10.0), card(100.0, 9.0), card(100.0, 10.1)];
        assert_eq!(seats(&cards, OFF, 2), Seats { screen: vec![1, 4, 0], finals: vec![1, 4] });
        let off = off(&cards);
        assert!((off[2].unwrap() + 0.3).abs() < 1e-9 && (off[3].unwrap() + 0.1).abs() < 1e-9);
        assert_eq!(seats(&cards, 0.5, 4).screen.len(), 5);
    }

    #[test]
    fn where_nobody_passes_the_nearest_screens_and_two_have_the_finals() {
        let apart = [card(70.0, 10.0), card(100.0, 9.0), card(115.0, 11.0)];
        assert_eq!(seats(&apart, OFF, 2), Seats { screen: vec![1], finals: vec![1, 2] });
    }

    #[test]
    fn who_has_measured_nothing_or_is_alone_has_no_seat() {
        assert_eq!(seats(&[card(100.0, 10.0), card(100.0, 10.0), Reach::new()], OFF, 3).finals, [0, 1]);
        assert_eq!(seats(&[card(100.0, 10.0)], OFF, 2), Seats::default());
        assert!(off(&[card(1.0, 1.0)])[0].is_none());
        assert!(
            reach(&Ceilings { launch: 1.0, flops: BTreeMap::from([(DType::F32, f64::NAN)]), ..Ceilings::default() })
                .is_empty()
        );
    }
}
