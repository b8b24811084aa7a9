//! Searches on recorded spaces of real kernels: the figures they must not fall below.

use std::path::Path;

use warplap_core::search::Brief;
use warplap_report::recorded::{Baseline, Recorded, replay};

fn recorded(name: &str) -> Recorded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/spaces/recorded/{name}.json"));
    Recorded::read(&path).unwrap()
}

const TRIALS: usize = 400;

/// The mean score over some seeds, and the mean of best over optimum after 25 trials.
fn measured(space: &Recorded, search: &str, donor: Option<&Recorded>) -> (f64, f64) {
    let baseline = Baseline::new(space, TRIALS).unwrap();
    let priors: Vec<_> = donor.iter().flat_map(|d| d.best(10)).map(Recorded::donor).collect();
    let (seeds, mut score, mut early) = (4, 0.0, 0.0);
    for seed in 0..seeds {
        let run = replay(space, search, TRIALS, &Brief { seed, priors: priors.clone(), ..Brief::default() }).unwrap();
        assert_eq!(run.trials, TRIALS);
        score += baseline.score(&run.curve) / seeds as f64;
        early += run.curve.best_at(25).unwrap_or(baseline.slowest_ms) / baseline.optimum_ms / seeds as f64;
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
fn donors_that_mislead_are_found_out() {
    // Their valley is 40 % above the optimum; a mind that never left it would score about 0.5.
    let (space, donor) = (recorded("convolution_milo__A100"), recorded("convolution_milo__MI250X"));
    let (score, _) = measured(&space, "auto", Some(&donor));
    assert!(score > 0.55, "{score}");
}

#[test]
fn a_space_is_its_own_best_donor() {
    let space = recorded("pnpoly__RTX_3090");
    let (score, early) = measured(&space, "auto", Some(&space));
    assert!(score > 0.99 && early < 1.0001, "{score} {early}");
}

/// A space that this program recorded itself.
fn own(name: &str) -> Recorded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/spaces/own/{name}.json"));
    Recorded::read(&path).unwrap()
}

#[test]
fn our_own_recorded_spaces_replay_and_there_is_one_of_every_operation_on_cpu_and_gpu() {
    for op in ["gemm", "attention", "bsr"] {
        for device in ["cpu", "h200"] {
            let space = own(&format!("{op}__{device}"));
            assert!(space.kernel.starts_with(&format!("{op}:")) && !space.device.is_empty(), "{op} {device}");
            let trials = space.len();
            let baseline = Baseline::new(&space, trials).unwrap();
            for search in ["auto", "climb", "exhaustive"] {
                let run = replay(&space, search, trials, &Brief { seed: 1, ..Brief::default() }).unwrap();
                let result = (run.trials, run.curve.best_at(trials));
                assert_eq!(result, (trials, Some(baseline.optimum_ms)), "{op} {device}");
            }
        }
    }
}

#[test]
fn a_users_kernel_on_a_gpu_is_found_in_a_quarter_of_its_configs() {
    let space = own("conv2d__h200");
    let baseline = Baseline::new(&space, 54).unwrap();
    for seed in 0..6 {
        let run = replay(&space, "auto", 54, &Brief { seed, ..Brief::default() }).unwrap();
        assert!(run.curve.best_at(54).unwrap() < 1.05 * baseline.optimum_ms, "{:?}", run.curve);
    }
}
