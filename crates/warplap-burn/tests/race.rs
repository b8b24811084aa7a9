//! A race in a Burn program: everybody is proved right, Burn's own too, and the winner is kept. About 8 s.

mod common;

use burn::tensor::module::attention as burns_attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, FloatDType, Tensor};
use common::{distance, drawn};
use warplap_burn::warplap::core::store::Store;
use warplap_burn::{AttentionOptions, Setup, attention, configure, matmul};

/// The trials of an operation's one record in a store: ids, and whether each was right.
fn trials(store: &Store, op: &str) -> Vec<(String, bool)> {
    let records = store.entries().into_iter().filter_map(|entry| match store.check(&entry) {
        warplap_burn::warplap::core::store::Checked::Whole(record) => Some(record),
        _ => None,
    });
    let of_op = records.filter(|record| record.problem.starts_with(&format!("{op}:")));
    let edition = |record: Box<warplap_burn::warplap::core::record::Record>| record.editions.into_iter().next();
    let trials = of_op.filter_map(edition).flat_map(|edition| edition.trials);
    trials.map(|t| (t.candidate.variant.clone(), t.is_right())).collect()
}

#[test]
fn burns_own_implementations_race_as_libraries_and_are_right_and_the_records_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    assert_eq!(configure(Setup::new().store(&root).budget(1.5)), None);
    let device = Device::flex();
    let (a, b) = (drawn([128, 96], 1, &device), drawn([96, 64], 2, &device));
    for _ in 0..3 {
        assert!(distance(matmul(a.clone(), b.clone()), a.clone().matmul(b.clone())) < 1e-5);
    }
    let q = drawn([1, 2, 48, 32], 3, &device);
    let seen = attention(q.clone(), q.clone(), q.clone(), AttentionOptions { causal: true, ..Default::default() });
    let options = AttentionModuleOptions { scale: None, softcap: None, is_causal: true };
    assert!(distance(seen, burns_attention(q.clone(), q.clone(), q, None, None, options)) < 1e-5);
    let store = warplap_burn::warplap::core::store::open_or_memory(Some(&root)).store;
    for op in ["gemm", "attention"] {
        let trials = trials(&store, op);
        let burns = trials.iter().find(|(id, _)| id == "burn_flex");
        assert_eq!(burns.map(|(_, right)| *right), Some(true), "{op}: {trials:?}");
        assert!(trials.iter().any(|(id, right)| id != "burn_flex" && *right), "{op}: {trials:?}");
    }
    // Half types go the same way.
    let half = |t: &Tensor<2>| t.clone().cast(FloatDType::F16);
    let c = matmul(half(&a), half(&b)).cast(FloatDType::F32);
    assert!(distance(c, a.matmul(b)) < 5e-3);
}
