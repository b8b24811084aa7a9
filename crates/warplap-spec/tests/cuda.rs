//! A user's CUDA kernel on the stand-in library: every bad config ends in its worker, and the caller's context lives.

mod standin;

use std::sync::Arc;

use warplap::any::AnyDevice;
use warplap::core::candidate::{Outcome, Trial};
use warplap::core::progress::Silent;
use warplap::core::store::Store;
use warplap::{Budget, Settings};
use warplap_spec::Spec;

/// Not a test: the worker of the others, which is this program again.
#[test]
fn worker() {
    warplap::worker::Worker::new().with_ground(warplap_spec::ground()).serve_if_asked();
}

#[test]
fn whatever_a_cuda_kernel_does_it_does_to_its_worker() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    // Only the first kind has blocks of 256: the others would take turns to crash in them too.
    let rules = "rules = [\"block_size_x <= 128 or KIND == 0\"]\n";
    let axes = standin::SPEC.replace("[0, 1, 2]", "[0, 1, 2, 3, 4, 5]").replace("[64, 128]", "[64, 128, 256]");
    put("k.toml", &format!("{rules}{axes}[reference]\nsource = \"sum.c\"\nentry = \"right\"\n"));
    put("sum.cu", standin::SUM);
    put(
        "sum.c",
        "void right(const float *a, const float *b, float *c, int n) { for (int i = 0; i < n; i++) c[i] = a[i] + b[i]; }",
    );
    let spec = Spec::load(&folder.path().join("k.toml")).unwrap();
    spec.ready().unwrap();
    let cuda = Arc::new(standin::device());
    let settings = Settings { budget: Budget { seconds: 120.0, ..Budget::default() }, ..Settings::default() };
    let any = AnyDevice::Cuda(cuda.clone());
    let tuned = spec.open(&any, Store::memory(), settings).unwrap().tune(&spec.problem(), &Silent).unwrap();

    let words = |kind: i64| -> Vec<&str> {
        let of_kind = tuned.edition.trials.iter().filter(|t| t.candidate.config.int("KIND") == Some(kind));
        let word = |t: &'_ Trial| match &t.outcome {
            Outcome::Measured(_) => "right",
            Outcome::Rejected(rejection) => rejection.word(),
        };
        of_kind.map(word).collect()
    };
    assert!(words(0).iter().all(|w| ["right", "outpaced"].contains(w)), "{:?}", words(0));
    for (kind, word) in [(1, "crashed"), (2, "wrong_answer"), (3, "timed_out"), (4, "crashed"), (5, "does_not_build")] {
        assert!(!words(kind).is_empty() && words(kind).iter().all(|w| *w == word), "{kind}: {:?}", words(kind));
    }
    assert_eq!(tuned.edition.verdict.winner.config.int("KIND"), Some(0));
    assert!(cuda.context_health().is_ok(), "the caller's context lives");

    // What a kernel takes of a multiprocessor is kept with its times: the stand-in gives 32 registers to every one, and
    // room for half of the threads.
    for timed in tuned.edition.trials.iter().filter_map(Trial::measurement) {
        let taken = timed.resources.as_deref().expect("the driver tells");
        assert_eq!((taken.registers, taken.occupancy), (32, 0.5));
    }
}
