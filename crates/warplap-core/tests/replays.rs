//! Searches on recorded spaces of real kernels: the figures they must not fall below.

use std::path::Path;

use warplap_core::recorded::{Recorded, Yardstick, replay};
use warplap_core::search::Brief;

fn recorded(name: &str) -> Recorded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/spaces/recorded/{name}.json"));
    Recorded::read(&path).unwrap()
}

/// The mean score over some seeds for 200 trials, and the mean of best over optimum after 25.
fn measured(space: &Recorded, search: &str, donor: Option<&Recorded>) -> (f64, f64) {
    let yardstick = Yardstick::new(space, 200).unwrap();
    let donors: Vec<_> = donor.iter().flat_map(|d| d.best(10)).map(Recorded::donor).collect();
    let (seeds, mut score, mut early) = (6, 0.0, 0.0);
    for seed in 0..seeds {
        let run = replay(space, search, 200, &Brief { seed, donors: donors.clone(), ..Brief::default() }).unwrap();
        assert_eq!(run.trials, 200);
        score += yardstick.score(&run.curve) / seeds as f64;
        early += run.curve.best_at(25).unwrap_or(yardstick.slowest_ms) / yardstick.optimum_ms / seeds as f64;
    }
    (score, early)
}

#[test]
fn auto_is_far_ahead_of_random_search_on_real_kernels() {
    for name in ["pnpoly__RTX_3090", "convolution_milo__A100"] {
        let (score, _) = measured(&recorded(name), "auto", None);
        assert!(score > 0.45, "{name}: {score}");
    }
}

#[test]
fn a_donor_of_another_vendor_costs_no_more_than_its_ten_trials() {
    let (space, donor) = (recorded("convolution_milo__A100"), recorded("convolution_milo__MI250X"));
    let (alone, _) = measured(&space, "auto", None);
    let (warm, _) = measured(&space, "auto", Some(&donor));
    // Ten of two hundred trials are 0.05 of the score where they bring nothing at all.
    assert!(warm > alone - 0.1, "{warm} with the donor, {alone} without");
}

#[test]
fn a_space_is_its_own_best_donor() {
    let space = recorded("pnpoly__RTX_3090");
    let (score, early) = measured(&space, "auto", Some(&space));
    assert!(score > 0.99 && early < 1.0001, "{score} {early}");
}
