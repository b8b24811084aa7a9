//! A task: one launch of an operation that exists, as a problem of it. What a graph asks of any operation goes through
//! here: its slots, its right answer, its key, and its tuner on a device. A new operation is a line of the list below.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::by_type::ByType;
use warplap_core::catalog::Raced;
use warplap_core::device::Device;
use warplap_core::engine::Tuner;
use warplap_core::error::Error;
use warplap_core::op::{Answer, Op};
use warplap_core::oracle::{FarAnswer, Inputs};
use warplap_core::problem::Problem;
use warplap_core::progress::Observer;
use warplap_core::roofline::Work;
use warplap_core::settings::Settings;
use warplap_core::slot::Signature;
use warplap_core::store::Store;

use super::predict::RacedSizes;

macro_rules! tasks {
    ($($V:ident = $P:ty, $O:ty, $doc:literal;)*) => {
        /// A problem of one of the operations that graphs are made of.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Task {
            $(#[doc = $doc] $V($P),)*
        }

        impl Task {
            /// The problem in its text form.
            pub fn text(&self) -> String {
                match self { $(Task::$V(p) => <$O>::text(p),)* }
            }

            /// The operation, and what its key keeps of the problem.
            pub(super) fn key(&self, bucket: &Bucket) -> String {
                match self { $(Task::$V(p) => format!("{}:{}", <$O>::NAME, p.key_fields(bucket)),)* }
            }

            /// The operation's name.
            pub(super) fn op(&self) -> &'static str {
                match self { $(Task::$V(_) => <$O>::NAME,)* }
            }

            /// The slots, in the order a launch takes them.
            pub(super) fn signature(&self) -> Signature {
                match self { $(Task::$V(p) => <$O>::signature(p),)* }
            }

            /// The right answers; inputs may be in double precision, whatever the problem's own type.
            pub(super) fn answer(&self, inputs: &[Array]) -> Vec<Answer> {
                match self { $(Task::$V(p) => <$O>::answer(p, inputs),)* }
            }

            /// The useful work.
            pub(super) fn work(&self) -> Work {
                match self { $(Task::$V(p) => p.work(),)* }
            }

            /// The same problem, if its operation reads its text back: sizes that it does not take are named.
            pub(super) fn checked(self) -> Result<Task, Error> {
                Ok(match self { $(Task::$V(p) => Task::$V(<$O>::parse(&<$O>::text(&p))?),)* })
            }
        }

        /// A device that all operations of a graph have variants on.
        pub trait Ground: Device {
            /// A task with its tuner.
            fn part(task: &Task, tuners: &Tuners<Self>) -> Arc<dyn Part<Self>>;
        }

        impl<D: Device> Ground for D
        where
            $($O: Raced<D>,)*
        {
            fn part(task: &Task, tuners: &Tuners<D>) -> Arc<dyn Part<D>> {
                match task { $(Task::$V(p) => Arc::new(Of { tuner: tuners.of::<$O>(), problem: p.clone() }),)* }
            }
        }
    };
}

tasks! {
    Gemm = warplap_ops::gemm::GemmProblem, warplap_ops::gemm::Gemm, "A product.";
    Gated = warplap_ops::gated::GatedProblem, warplap_ops::gated::Gated, "An activation, a sum or a product, element by element.";
    Norm = warplap_ops::norm::NormProblem, warplap_ops::norm::Norm, "A norm of rows.";
    Softmax = warplap_ops::softmax::SoftmaxProblem, warplap_ops::softmax::Softmax, "A softmax of rows.";
    Attention = warplap_ops::attention::AttentionProblem, warplap_ops::attention::Attention, "Attention.";
    Rope = warplap_ops::rope::RopeProblem, warplap_ops::rope::Rope, "Heads turned by their positions.";
}

/// The tuners of a graph, one an operation, made when it is first asked for.
pub struct Tuners<D: Device> {
    pub(super) device: Arc<D>,
    pub(super) store: Store,
    pub(super) settings: Settings,
    /// Sizes that the session's graphs were raced in.
    pub(super) known: Arc<RacedSizes>,
    by_type: ByType,
}

impl<D: Device> Tuners<D> {
    /// Tuners of one device, over a store.
    pub fn new(device: Arc<D>, store: Store, settings: Settings) -> Self {
        Tuners { device, store, settings, known: Arc::default(), by_type: ByType::default() }
    }

    /// With sizes that other graphs were raced in.
    pub fn knowing(self, known: Arc<RacedSizes>) -> Self {
        Tuners { known, ..self }
    }

    fn of<O: Raced<D>>(&self) -> Arc<Tuner<O, D>> {
        let (device, store) = (&self.device, &self.store);
        let make = || Arc::new(Tuner::new(device.clone(), O::catalog(), store.clone(), self.settings.clone()));
        self.by_type.get::<Arc<Tuner<O, D>>>(make).clone()
    }
}

/// A task on a device.
pub trait Part<D: Device>: Send + Sync {
    /// Does it with the kernel of choice.
    fn launch(&self, args: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Error>;
    /// Chooses its kernel by the mode, so that launching need not.
    fn choose(&self) -> Result<(), Error>;
    /// Seconds it takes by itself, from its record or from a race now.
    fn seconds(&self, observer: &dyn Observer) -> Result<f64, Error>;
    /// Who may race for it, by their code.
    fn sources(&self) -> String;
    /// Whether somebody computes right answers on the device.
    fn has_oracle(&self) -> bool;
    /// The right answers to what lies on the device, one for each slot that is written.
    fn right(&self, inputs: &Inputs<'_, D>, device: &D) -> Result<Vec<FarAnswer<D>>, Error>;
}

struct Of<O: Op, D: Device> {
    tuner: Arc<Tuner<O, D>>,
    problem: O::Problem,
}

impl<O: Op, D: Device> Part<D> for Of<O, D> {
    fn launch(&self, args: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Error> {
        self.tuner.launch(&self.problem, args, queue)
    }

    fn choose(&self) -> Result<(), Error> {
        self.tuner.choose(&self.problem).map(|_| ())
    }

    fn seconds(&self, observer: &dyn Observer) -> Result<f64, Error> {
        Ok(self.tuner.ensure(&self.problem, observer)?.edition.verdict.median_us * 1e-6)
    }

    fn sources(&self) -> String {
        let sources: Vec<String> = self.tuner.catalog().variants().iter().map(|v| v.source().0).collect();
        format!("{} {}", O::NAME, sources.join(" "))
    }

    fn has_oracle(&self) -> bool {
        self.tuner.catalog().oracle().is_some()
    }

    fn right(&self, inputs: &Inputs<'_, D>, device: &D) -> Result<Vec<FarAnswer<D>>, Error> {
        let nobody = || Error::Device(format!("nobody computes right answers of {} on the device", O::NAME));
        self.tuner.catalog().oracle().ok_or_else(nobody)?.answer(&self.problem, inputs, device)
    }
}
