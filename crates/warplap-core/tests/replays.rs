//! Searches on recorded spaces of real kernels: the figures they must not fall below.

use std::path::Path;

use warplap_core::recorded::{Recorded, Yardstick, replay};
use warplap_core::search::Brief;

fn recorded(name: &str) -> Recorded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/spaces/recorded/{name}.json"));
    Recorded::read(&path).unwrap()
}

const TRIALS: usize = 400;

/// The mean score over some seeds, and the mean of best over optimum after 25 trials.
fn measured(space: &Recorded, search: &str, donor: Option<&Recorded>) -> (f64, f64) {
    let yardstick = Yardstick::new(space, TRIALS).unwrap();
    let donors: Vec<_> = donor.iter().flat_map(|d| d.best(10)).map(Recorded::donor).collect();
    let (seeds, mut score, mut early) = (4, 0.0, 0.0);
    for seed in 0..seeds {
        let run = replay(space, search, TRIALS, &Brief { seed, donors: donors.clone(), ..Brief::default() }).unwrap();
        assert_eq!(run.trials, TRIALS);
        score += yardstick.score(&run.curve) / seeds as f64;
        early += run.curve.best_at(25).unwrap_or(yardstick.slowest_ms) / yardstick.optimum_ms / seeds as f64;
    }
    (score, early)
}

#[test]
fn auto_is_far_ahead_of_random_search_on_real_kernels() {
    for name in ["pnpoly__RTX_3090", "convolution_milo__A100"] {
        let (score, _) = measured(&recorded(name), "auto", None);
        assert!(score > 0.5, "{name}: {score}");
    }
}

#[test]
fn the_best_of_another_card_are_a_good_start() {
    let (space, donor) = (recorded("convolution_milo__MI250X"), recorded("convolution_milo__A100"));
    let (score, _) = measured(&space, "auto", Some(&donor));
    assert!(score > 0.6, "{score}");
}

#[test]
fn a_space_is_its_own_best_donor() {
    let space = recorded("pnpoly__RTX_3090");
    let (score, early) = measured(&space, "auto", Some(&space));
    assert!(score > 0.99 && early < 1.0001, "{score} {early}");
}
