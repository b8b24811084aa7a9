//! OpDispatchers: the tuner of an operation on a device and what it has chosen so far. A problem comes in; its slots, and
//! whether Burn's own implementation is to answer, go out.

use std::sync::{Arc, OnceLock};

use warplap::core::by_type::ByType;
use warplap::core::catalog::Raced;
use warplap::core::device::Device;
use warplap::core::dispatch::Dispatch;
use warplap::core::op::Op;
use warplap::core::slot::Signature;
use warplap::core::store::Store;
use warplap::{Error, Settings, Tuner};

use crate::backends::rival;

/// What is known of a problem whose kernel was chosen.
pub(crate) struct Entry {
    pub(crate) signature: Signature,
    /// Whether Burn's own implementation won; unknown until it met the winner, where it could not race.
    pub(crate) burns_own: OnceLock<bool>,
}

/// The tuner of one operation and what it has chosen so far.
pub(crate) struct OpDispatcher<O: Op, D: Device> {
    pub(crate) tuner: Tuner<O, D>,
    ready: Arc<Dispatch<O::Problem, Entry>>,
}

impl<O: Op, D: Device> OpDispatcher<O, D> {
    /// Hands what is known of a problem to `f`. What is not known is raced first.
    pub(crate) fn with<R>(
        &self,
        problem: &O::Problem,
        queue: &D::Queue,
        f: impl FnOnce(&Entry) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self.ready.with(problem, f) {
            Ok(done) => done,
            Err(f) => f(&*self.choose(problem, queue)?),
        }
    }

    #[cold]
    fn choose(&self, problem: &O::Problem, queue: &D::Queue) -> Result<Arc<Entry>, Error> {
        // A problem made from tensors has seen none of the checks that one from a text has.
        O::parse(&O::text(problem))?;
        let chosen = self.tuner.choose_on(problem, queue)?;
        let burns_own = OnceLock::new();
        if rival::races::<D>() {
            let _ = burns_own.set(rival::is_burns_own(&chosen.candidate.variant));
        }
        let entry = Arc::new(Entry { signature: O::signature(problem), burns_own });
        self.ready.put(problem.clone(), entry.clone());
        Ok(entry)
    }
}

/// The dispatchers of one device, one an operation, set up when an operation is first asked for.
pub(crate) struct OpDispatchers<D: Device> {
    pub(crate) device: Arc<D>,
    store: Store,
    settings: Settings,
    dispatchers: ByType,
}

impl<D: Device> OpDispatchers<D> {
    pub(crate) fn new(device: Arc<D>, store: Store, settings: Settings) -> Self {
        OpDispatchers { device, store, settings, dispatchers: ByType::default() }
    }

    /// The desk of an operation.
    #[inline]
    pub(crate) fn of<O: Raced<D>>(&self) -> &OpDispatcher<O, D> {
        self.dispatchers.get(|| {
            let catalog = rival::join(O::catalog());
            let tuner = Tuner::new(self.device.clone(), catalog, self.store.clone(), self.settings.clone());
            let ready = Arc::new(Dispatch::new());
            let stale: Arc<Dispatch<O::Problem, Entry>> = ready.clone();
            // The winner of a race in the background may be of the other kind.
            tuner.when_replaced(move || stale.clear());
            OpDispatcher { tuner, ready }
        })
    }
}
