//! The spaces of other tuners' own examples: each holds as many configs as those tuners find, and is found by
//! propagation, not by filtering 10¹¹ settings.

use std::path::Path;

use warplap_core::space::Space;
use warplap_report::recorded::Recorded;

/// Legal configs as Kernel Tuner 1.5.0 counts them; the last as pyATF 0.0.13 does.
const COUNTS: [(&str, u128); 18] = [
    ("dedispersion", 11_130),
    ("convolution_milo", 4_362),
    ("convolution_bat", 6_768),
    ("nbody_bat", 1_568),
    ("triad_bat", 4_320),
    ("coulomb2d_ktt", 14_784),
    ("reduction_ktt", 2_640),
    ("gemm_clblast_small", 17_956),
    ("xgemm_direct_clblast", 19_952),
    ("gemm_milo", 116_928),
    ("microhh", 138_600),
    ("gemm_cltune_full", 241_600),
    ("expdist", 504_000),
    ("hotspot", 349_853),
    ("atf_prl_2x2", 1_200),
    ("atf_prl_4x4", 10_800),
    ("atf_prl_8x8", 48_720),
    ("atf_gaussian_pow2", 149_281_440),
];

fn space(name: &str) -> Space {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/spaces/construct/{name}.json"));
    Recorded::definition(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_space_holds_as_many_configs_as_other_tuners_find() {
    for (name, count) in COUNTS {
        let space = space(name);
        assert_eq!(space.count(), count, "{name}");
        assert_eq!(space.check(), Ok(()), "{name}");
        if count < 1_000_000 {
            assert_eq!(space.rows().unwrap().len() as u128, count, "{name}");
        }
    }
}

#[test]
fn a_config_of_any_index_obeys_every_rule_and_leads_back_to_its_index() {
    for (name, count) in COUNTS {
        let space = space(name);
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..50 {
            let index = rng.u128(..count);
            let config = space.at(index).unwrap();
            assert!(space.rules().iter().all(|rule| rule.holds(&config)), "{name}: {config}");
            assert_eq!(space.index(&config), Some(index), "{name}");
            let near = space.hamming(&config);
            assert!(near.iter().all(|c| space.rules().iter().all(|rule| rule.holds(c))), "{name}");
        }
    }
}

#[test]
fn a_space_of_a_hundred_million_configs_is_counted_and_sampled_without_a_list() {
    let space = space("atf_gaussian_pow2");
    let mut rng = fastrand::Rng::with_seed(1);
    let drawn: std::collections::HashSet<_> = (0..1000).filter_map(|_| space.sample(&mut rng)).collect();
    assert!(drawn.len() > 990 && drawn.iter().all(|c| space.contains(c)));
    assert!(space.diagram().unwrap().nodes() < 10_000);
}
