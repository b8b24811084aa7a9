//! Cards whose kernels bring their own arguments and judge themselves, with configs that are listed one by one: what
//! callables of another language are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warplap_core::arg::Arg;
use warplap_core::bucket::Bucket;
use warplap_core::candidate::{Outcome, SourceHash};
use warplap_core::engine::{Tuned, TuningEngine};
use warplap_core::erased::ErasedProblem;
use warplap_core::key::Key;
use warplap_core::measure::Policy;
use warplap_core::progress::Silent;
use warplap_core::rejection::Rejection;
use warplap_core::sandbox::{Passed, SandboxRequest};
use warplap_core::settings::Settings;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::store::Store;
use warplap_core::variant::{Kernel, Proof};

use crate::fake::{Fake, Meter};

/// How often each setting was proved.
type Proofs = Arc<Mutex<BTreeMap<i64, u64>>>;

/// A list of settings `n`, each of which takes `n` microseconds; those above 100 are wrong, 13 takes its process down.
#[derive(Clone)]
struct Listed {
    settings: Vec<i64>,
    source: &'static str,
    proofs: Proofs,
    sandboxed: Arc<AtomicU64>,
}

impl Listed {
    fn new(settings: &[i64]) -> Self {
        Listed { settings: settings.to_vec(), source: "1", proofs: Proofs::default(), sandboxed: Arc::default() }
    }

    fn tune(&self, store: &Store, settings: Settings) -> Tuned {
        TuningEngine::new(Arc::new(Fake::new()), store.clone(), settings).tune(self, &Silent).unwrap()
    }

    fn proved(&self) -> Vec<i64> {
        self.proofs.lock().unwrap().keys().copied().collect()
    }
}

impl ErasedProblem<Fake> for Listed {
    fn op(&self) -> &str {
        "outside"
    }
    fn text(&self) -> String {
        "outside:anything [4x4] at all".into()
    }
    fn key(&self, _: &Bucket, policy: Policy) -> Key {
        Key::new("outside", format!("{};bucket=exact,{policy}", ErasedProblem::<Fake>::text(self)))
    }
    fn representative(&self, _: &Bucket) -> Box<dyn ErasedProblem<Fake>> {
        Box::new(self.clone())
    }
    fn boxed(&self) -> Box<dyn ErasedProblem<Fake>> {
        Box::new(self.clone())
    }
    fn count(&self) -> usize {
        1
    }
    fn id(&self, _: usize) -> &str {
        "callable"
    }
    fn source(&self, _: usize) -> SourceHash {
        SourceHash::of(&[self.source])
    }
    fn space(&self, _: usize, _: &Fake) -> Space {
        let axis = Axis::ints("n", self.settings.iter().copied());
        let points = self.settings.iter().map(|n| vec![axis.number(&(*n).into()).unwrap()]).collect();
        Space::of_points(vec![axis], points).unwrap()
    }
    fn build(&self, _: usize, config: &Config, _: &Fake) -> Result<Box<dyn Kernel<Fake>>, Rejection> {
        Ok(Box::new(Judge { n: config.size("n").unwrap() as i64, proofs: self.proofs.clone() }))
    }
    fn sandbox(&self, request: &SandboxRequest, _: &Fake) -> Option<Result<Passed, Rejection>> {
        self.sandboxed.fetch_add(1, Ordering::SeqCst);
        let crashed = || Err(Rejection::Crashed { reason: "signal 11".into() });
        (request.candidate.config.size("n") == Some(13)).then(crashed)
    }
}

struct Judge {
    n: i64,
    proofs: Proofs,
}

impl Kernel<Fake> for Judge {
    fn launch(&self, args: &mut [Arg<'_, Fake>], queue: &Meter) -> Result<(), Rejection> {
        assert!(args.is_empty(), "it brings its own");
        *queue.0.lock().unwrap() = self.n as f64 * 1e-6;
        Ok(())
    }

    fn prove(&self) -> Option<Result<Proof, Rejection>> {
        *self.proofs.lock().unwrap().entry(self.n).or_default() += 1;
        let wrong = || Rejection::WrongAnswer { error: 9.0, allowed: 1.0, reason: "by the table".into() };
        Some(if self.n > 100 { Err(wrong()) } else { Ok(Proof { error: 0.5, seconds: None }) })
    }
}

fn rejected(tuned: &Tuned, n: usize) -> Option<&Rejection> {
    let trial = tuned.edition.trials.iter().find(|t| t.candidate.config.size("n") == Some(n))?;
    match &trial.outcome {
        Outcome::Rejected(rejection) => Some(rejection),
        Outcome::Measured(_) => None,
    }
}

#[test]
fn a_kernel_that_judges_itself_is_raced_like_all_others() {
    let (store, list) = (Store::memory(), Listed::new(&[50, 20, 200, 30]));
    let tuned = list.tune(&store, Settings::default());
    assert_eq!(tuned.edition.verdict.winner.config.size("n"), Some(20));
    assert!(matches!(rejected(&tuned, 200), Some(Rejection::WrongAnswer { .. })));
    assert!(list.proofs.lock().unwrap()[&20] >= 2, "the winner is proved once more after timing");
    let again = Listed::new(&[50, 20, 200, 30]);
    assert!(again.tune(&store, Settings::default()).from_store && again.proved().is_empty());
}

#[test]
fn a_list_that_grows_sends_what_is_new_against_the_winner_alone() {
    let store = Store::memory();
    Listed::new(&[50, 20, 30]).tune(&store, Settings::default());
    let grown = Listed::new(&[50, 20, 30, 10]);
    let tuned = grown.tune(&store, Settings::default());
    assert_eq!((grown.proved(), tuned.edition.verdict.winner.config.size("n")), (vec![10, 20], Some(10)));
    assert_eq!(tuned.edition.trials.len(), 4, "what was known is kept");
    let swapped = Listed::new(&[50, 20, 40, 10]);
    swapped.tune(&store, Settings::default());
    assert_eq!(swapped.proved(), [10, 40], "as many as before, and one of them new");
    let shorter = Listed::new(&[50, 20]);
    let tuned = shorter.tune(&store, Settings::default());
    assert_eq!(tuned.edition.verdict.winner.config.size("n"), Some(20), "a winner that is not listed does not answer");
    let other = Listed { source: "2", ..Listed::new(&[50, 20]) };
    other.tune(&store, Settings::default());
    assert_eq!(other.proved(), [20, 50], "other code, other times");
}

#[test]
fn who_takes_a_process_down_is_kept_from_later_races() {
    let (store, list) = (Store::memory(), Listed::new(&[50, 13, 20]));
    let tuned = list.tune(&store, Settings::default());
    assert!(matches!(rejected(&tuned, 13), Some(Rejection::Crashed { .. })));
    assert_eq!(list.proved(), [20, 50]);
    let again = Listed::new(&[50, 13, 20]);
    let tuned = again.tune(&store, Settings { again: true, ..Settings::default() });
    assert_eq!(again.sandboxed.load(Ordering::SeqCst), 2, "the one in quarantine is not tried again");
    assert!(tuned.edition.skipped.iter().any(|s| s.reason.contains("quarantine")), "{:?}", tuned.edition.skipped);
}
