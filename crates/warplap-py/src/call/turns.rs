//! Turns: the winner of a race in the background and its rival come in, and a program's own calls; who is to answer goes
//! out. Each call is made once, by one of the two, and timed: nobody waits for a last heat.

use std::sync::{Arc, Mutex};

use warplap::core::candidate::Candidate;
use warplap::core::record::EndToEndRace;

use crate::call::dispatcher::Entry;
use crate::call::end_to_end_race::AHEAD;
use crate::tensor::kernel_argument::LaunchDevice;

/// Pairs of calls whose times are not believed: memory and threads are new to them.
const WARM: usize = 2;
/// Pairs without which nothing is said, and the most.
const LEAST: usize = 12;
const MOST: usize = 60;
/// So many deviations of the median are enough.
const SURE: f64 = 4.0;
/// Pairs that are enough where each of them says that one takes this much longer.
const FEW: usize = 3;
const FAR: f64 = 1.5;

/// A winner and a rival that answer in turns.
pub(crate) struct Turns<D: LaunchDevice> {
    pub(crate) rival: Arc<Entry<D>>,
    names: [Candidate; 2],
    /// The lane of a library's function: 0 is the winner's, 1 the rival's.
    library: usize,
    state: Mutex<Pairs>,
}

#[derive(Default)]
struct Pairs {
    /// Seconds of the pair that is under way, by lane.
    pair: [Option<f64>; 2],
    seen: usize,
    /// The logarithms of the rival's time over the winner's.
    ratios: Vec<f64>,
    winner_seconds: Vec<f64>,
    over: bool,
}

/// What one call said.
pub(crate) enum Turn {
    /// Go on.
    Open,
    /// It is known who is faster.
    Decided(EndToEndRace),
}

impl<D: LaunchDevice> Turns<D> {
    pub(crate) fn new(rival: Arc<Entry<D>>, winner: &Candidate, other: &Candidate, library: usize) -> Turns<D> {
        Turns { rival, names: [winner.clone(), other.clone()], library, state: Mutex::default() }
    }

    /// Whose turn it is; nothing where another thread is asking, or it is over.
    pub(crate) fn lane(&self) -> Option<usize> {
        let pairs = self.state.try_lock().ok().filter(|pairs| !pairs.over)?;
        Some(match pairs.pair {
            // The one and the other first, in turns.
            [None, None] => pairs.seen % 2,
            [None, Some(_)] => 0,
            _ => 1,
        })
    }

    /// Whether it was the rival that a race ended with.
    pub(crate) fn wins(&self, race: &EndToEndRace) -> bool {
        race.winner == self.names[1]
    }

    /// Takes note of a call.
    pub(crate) fn took(&self, lane: usize, seconds: f64) -> Turn {
        let Ok(mut pairs) = self.state.try_lock() else { return Turn::Open };
        pairs.pair[lane] = Some(seconds.max(1e-9));
        let [Some(winner), Some(rival)] = pairs.pair else { return Turn::Open };
        pairs.pair = [None, None];
        pairs.seen += 1;
        if pairs.seen <= WARM || pairs.over {
            return Turn::Open;
        }
        pairs.ratios.push((rival / winner).ln());
        pairs.winner_seconds.push(winner);
        let Some(ratio) = decided(&pairs.ratios, self.library) else { return Turn::Open };
        pairs.over = true;
        Turn::Decided(self.end_to_end_race(ratio, median(&pairs.winner_seconds)))
    }

    /// Where little is to be had, users get what they would have without us.
    fn end_to_end_race(&self, ratio: f64, winner_seconds: f64) -> EndToEndRace {
        let ours_ahead = if self.library == 0 { -ratio } else { ratio };
        let first = if ours_ahead.exp_m1() > AHEAD { 1 - self.library } else { self.library };
        let (behind, seconds) =
            if first == 0 { (ratio, winner_seconds) } else { (-ratio, winner_seconds * ratio.exp()) };
        let [winner, other] = [first, 1 - first].map(|lane| self.names[lane].clone());
        EndToEndRace { winner, other, call_us: seconds * 1e6, gap: behind.exp_m1() }
    }
}

/// The logarithm of the rival's time over the winner's, once enough is known to tell who is to answer.
fn decided(ratios: &[f64], library: usize) -> Option<f64> {
    let (count, middle) = (ratios.len(), median(ratios));
    let far = |sign: f64| ratios.iter().all(|ratio| ratio * sign > FAR.ln());
    if count >= FEW && (far(1.0) || far(-1.0)) {
        return Some(middle);
    }
    let deviation = 1.4826 * median(&ratios.iter().map(|ratio| (ratio - middle).abs()).collect::<Vec<_>>());
    let error = 1.2533 * deviation / (count as f64).sqrt();
    let bar = if library == 0 { -AHEAD.ln_1p() } else { AHEAD.ln_1p() };
    let is_sure = count >= LEAST && (middle - bar).abs() > SURE * error;
    (is_sure || count >= MOST).then_some(middle)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ratios around a middle, some of them far off: calls that were interrupted.
    fn around(middle: f64, count: usize) -> Vec<f64> {
        let noise = |n: usize| (n * 37 % 100) as f64 / 100.0 - 0.5;
        let off = |n: usize| if n.is_multiple_of(9) { 0.8 } else { 0.0 };
        (0..count).map(|n| middle + 0.04 * noise(n) + off(n)).collect()
    }

    #[test]
    fn enough_calls_tell_who_is_faster_and_a_few_where_one_takes_far_longer() {
        assert!(decided(&around(1.0, FEW), 1).is_some() && decided(&around(-1.0, 12), 1).is_some());
        assert!(decided(&around(0.2, LEAST - 1), 1).is_none());
        for (library, middle) in [(1, 0.2), (1, -0.2), (0, 0.2), (0, -0.2)] {
            let ratio = decided(&around(middle, 2 * LEAST), library).unwrap();
            assert!((ratio - middle).abs() < 0.03, "{ratio} where it is {middle}");
        }
        assert!(decided(&around(AHEAD.ln_1p(), LEAST), 1).is_none(), "nobody can tell yet");
        assert!(decided(&around(AHEAD.ln_1p(), MOST), 1).is_some(), "but there is an end to it");
    }
}
