//! The problem of a race: one problem and who may race for it, the operation's type forgotten.
//!
//! A typed problem and its typed catalog come in ([`TypedProblem`]); what the rooms behind the corridor work on goes out. They
//! are so compiled once a device, not once an operation and device.

use crate::candidate::SourceHash;
use crate::candidates::catalog::Catalog;
use crate::candidates::variant::{Fit, Kernel, Needs, Priority};
use crate::device::Device;
use crate::error::Error;
use crate::key::Key;
use crate::measure::Policy;
use crate::model::array::Array;
use crate::model::bucket::Bucket;
use crate::model::dtype::DType;
use crate::model::op::{Answer, Op};
use crate::model::problem::Problem;
use crate::model::roofline::{Ceilings, Work};
use crate::model::slot::Signature;
use crate::prove::oracle::{FarAnswer, Inputs};
use crate::prove::sandbox::{Passed, SandboxRequest};
use crate::record::Skipped;
use crate::rejection::Rejection;
use crate::space::{Config, Space};

/// One problem and who may race for it. Variants are named by their place in the catalog; 0 is the reference.
///
/// What has a default here need not be said by a problem whose kernels bring their own arguments: it has no slots, its
/// work is not known, and its kernels judge themselves ([`Kernel::prove`]).
pub trait ErasedProblem<D: Device>: Send + Sync {
    /// The operation's name.
    fn op(&self) -> &str;
    /// The problem in its text form.
    fn text(&self) -> String;
    /// The problem's key.
    fn key(&self, bucket: &Bucket, policy: Policy) -> Key;
    /// The problem of the problem that is raced for the key.
    fn representative(&self, bucket: &Bucket) -> Box<dyn ErasedProblem<D>>;
    /// The problem of a smaller problem whose sizes end inside of tiles, where there is one of use.
    fn ragged(&self) -> Option<Box<dyn ErasedProblem<D>>> {
        None
    }
    /// The problem of a much smaller problem that tells what this one will take, where there is one.
    fn smaller(&self) -> Option<Box<dyn ErasedProblem<D>>> {
        None
    }
    /// The same once more.
    fn boxed(&self) -> Box<dyn ErasedProblem<D>>;
    /// The useful work.
    fn work(&self) -> Work {
        Work::default()
    }
    /// The type the inputs are stored in.
    fn dtype(&self) -> DType {
        DType::F32
    }
    /// The least seconds it can take.
    fn least(&self, _ceilings: &Ceilings, _cold: bool) -> Option<f64> {
        None
    }

    /// The slots of the problem.
    fn signature(&self) -> Signature {
        Signature::default()
    }
    /// Draws inputs from a seed, one array a slot.
    fn draw(&self, _seed: u64) -> Vec<Array> {
        Vec::new()
    }
    /// The right answer, one for each slot that is written.
    fn answer(&self, _inputs: &[Array]) -> Vec<Answer> {
        Vec::new()
    }
    /// Whether somebody computes right answers on the device, and whether nobody else can.
    fn oracle(&self) -> Option<bool> {
        None
    }
    /// The right answer by the oracle; an error where there is none.
    fn far_answer(&self, _inputs: &Inputs<'_, D>, _device: &D) -> Result<Vec<FarAnswer<D>>, Error> {
        Err(Error::Device("nobody computes right answers on the device".into()))
    }

    /// How many variants there are.
    fn count(&self) -> usize;
    /// A variant's id.
    fn id(&self, at: usize) -> &str;
    /// Its code.
    fn source(&self, at: usize) -> SourceHash;
    /// Whether it is an official library's.
    fn is_library(&self, _at: usize) -> bool {
        false
    }
    /// Whether it is what the host program would call without us.
    fn is_usual(&self, _at: usize) -> bool {
        false
    }
    /// Its answer to the problem.
    fn fit(&self, _at: usize, _device: &D) -> Fit {
        Fit::HIGH
    }
    /// Its tunables.
    fn space(&self, at: usize, device: &D) -> Space;
    /// What a setting takes.
    fn needs(&self, _at: usize, _config: &Config) -> Needs {
        Needs::default()
    }
    /// The least seconds of a setting.
    fn floor(&self, _at: usize, _config: &Config, _ceilings: &Ceilings) -> Option<f64> {
        None
    }
    /// Compiles a setting.
    fn compile(&self, _at: usize, _config: &Config, _device: &D) -> Result<(), Rejection> {
        Ok(())
    }
    /// Builds a setting.
    fn build(&self, at: usize, config: &Config, device: &D) -> Result<Box<dyn Kernel<D>>, Rejection>;
    /// Lets a candidate run elsewhere before it runs here: it has passed or is rejected. `None`: it may prove itself
    /// here.
    fn sandbox(&self, request: &SandboxRequest, device: &D) -> Option<Result<Passed, Rejection>> {
        device.sandbox(request)
    }
    /// Called when candidates will soon be sent to a worker.
    fn call_worker(&self, device: &D) {
        device.call_worker();
    }
}

/// A variant on a card.
pub struct Runner<'c, D: Device> {
    erased: &'c dyn ErasedProblem<D>,
    at: usize,
}

impl<D: Device> Clone for Runner<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Device> Copy for Runner<'_, D> {}

impl<'c, D: Device> Runner<'c, D> {
    /// Its id.
    pub fn id(&self) -> &'c str {
        self.erased.id(self.at)
    }

    /// The code behind it.
    pub fn source(&self) -> SourceHash {
        self.erased.source(self.at)
    }

    /// Whether it is an official library's.
    pub fn is_library(&self) -> bool {
        self.erased.is_library(self.at)
    }

    /// Whether it is what the host program would call without us.
    pub fn is_usual(&self) -> bool {
        self.erased.is_usual(self.at)
    }

    /// Whether reports compare winners with it: the reference, or an official library.
    pub fn is_baseline(&self) -> bool {
        self.at == 0 || self.is_library()
    }

    /// Its answer to the problem.
    pub fn fit(&self, device: &D) -> Fit {
        self.erased.fit(self.at, device)
    }

    /// Whether it can do the problem.
    pub fn fits(&self, device: &D) -> bool {
        matches!(self.fit(device), Fit::Fits(_))
    }

    /// Its tunables.
    pub fn space(&self, device: &D) -> Space {
        self.erased.space(self.at, device)
    }

    /// What a setting takes of the device's limits.
    pub fn needs(&self, config: &Config) -> Needs {
        self.erased.needs(self.at, config)
    }

    /// The least seconds of a setting.
    pub fn floor(&self, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        self.erased.floor(self.at, config, ceilings)
    }

    /// Compiles a setting.
    pub fn compile(&self, config: &Config, device: &D) -> Result<(), Rejection> {
        self.erased.compile(self.at, config, device)
    }

    /// Builds a setting.
    pub fn build(&self, config: &Config, device: &D) -> Result<Box<dyn Kernel<D>>, Rejection> {
        self.erased.build(self.at, config, device)
    }
}

/// A variant that may race, and how eagerly.
pub struct ListedVariant<'c, D: Device> {
    /// The variant.
    pub runner: Runner<'c, D>,
    /// How eagerly it should be raced.
    pub priority: Priority,
}

impl<'c, D: Device> dyn ErasedProblem<D> + 'c {
    /// All variants, in the order of the catalog.
    pub fn runners(&self) -> impl Iterator<Item = Runner<'_, D>> {
        (0..self.count()).map(|at| Runner { erased: self.short(), at })
    }

    /// A trait object of a life no longer than the borrow's.
    fn short(&self) -> &dyn ErasedProblem<D> {
        self
    }

    /// The reference.
    pub fn reference(&self) -> Runner<'_, D> {
        Runner { erased: self.short(), at: 0 }
    }

    /// A variant by its id.
    pub fn find(&self, id: &str) -> Option<Runner<'_, D>> {
        self.runners().find(|r| r.id() == id)
    }

    /// Whether reports compare winners with a variant: the reference, or an official library.
    pub fn is_baseline(&self, id: &str) -> bool {
        self.find(id).is_some_and(|r| r.is_baseline())
    }

    /// Who may race, best priority first and in the catalog's order within one, and who stands aside and why.
    pub fn list(&self, device: &D) -> (Vec<ListedVariant<'_, D>>, Vec<Skipped>) {
        let (mut listed, mut aside) = (Vec::new(), Vec::new());
        for runner in self.runners() {
            match runner.fit(device) {
                Fit::Fits(priority) => listed.push(ListedVariant { runner, priority }),
                Fit::Aside(reason) => {
                    let (variant, source) = (runner.id().to_string(), runner.source());
                    aside.push(Skipped { variant, source, configs: 0, reason });
                }
            }
        }
        listed.sort_by_key(|l| std::cmp::Reverse(l.priority));
        (listed, aside)
    }
}

/// A problem with its operation's catalog, typed: the problem every operation has.
pub struct TypedProblem<O: Op, D: Device> {
    problem: O::Problem,
    catalog: Catalog<O, D>,
}

impl<O: Op, D: Device> TypedProblem<O, D> {
    /// The problem of a problem.
    pub fn new(problem: &O::Problem, catalog: &Catalog<O, D>) -> Self {
        TypedProblem { problem: problem.clone(), catalog: catalog.clone() }
    }
}

impl<O: Op, D: Device> ErasedProblem<D> for TypedProblem<O, D> {
    fn op(&self) -> &str {
        O::NAME
    }

    fn text(&self) -> String {
        O::text(&self.problem)
    }

    fn key(&self, bucket: &Bucket, policy: Policy) -> Key {
        O::key(&self.problem, bucket, policy)
    }

    fn representative(&self, bucket: &Bucket) -> Box<dyn ErasedProblem<D>> {
        let asked = bucket.races_what_is_asked();
        let problem = if asked { self.problem.raced() } else { self.problem.representative(bucket) };
        Box::new(TypedProblem { problem, catalog: self.catalog.clone() })
    }

    fn ragged(&self) -> Option<Box<dyn ErasedProblem<D>>> {
        let problem = self.problem.ragged()?;
        Some(Box::new(TypedProblem { problem, catalog: self.catalog.clone() }))
    }

    fn smaller(&self) -> Option<Box<dyn ErasedProblem<D>>> {
        let problem = self.problem.smaller()?;
        Some(Box::new(TypedProblem { problem, catalog: self.catalog.clone() }))
    }

    fn boxed(&self) -> Box<dyn ErasedProblem<D>> {
        Box::new(TypedProblem::new(&self.problem, &self.catalog))
    }

    fn work(&self) -> Work {
        self.problem.work()
    }

    fn dtype(&self) -> DType {
        self.problem.dtype()
    }

    fn least(&self, ceilings: &Ceilings, cold: bool) -> Option<f64> {
        self.problem.floor(ceilings, cold)
    }

    fn signature(&self) -> Signature {
        O::signature(&self.problem)
    }

    fn draw(&self, seed: u64) -> Vec<Array> {
        O::draw(&self.problem, &mut fastrand::Rng::with_seed(seed))
    }

    fn answer(&self, inputs: &[Array]) -> Vec<Answer> {
        O::answer(&self.problem, inputs)
    }

    fn oracle(&self) -> Option<bool> {
        self.catalog.oracle().map(|oracle| oracle.is_alone())
    }

    fn far_answer(&self, inputs: &Inputs<'_, D>, device: &D) -> Result<Vec<FarAnswer<D>>, Error> {
        let nobody = || Error::Device("nobody computes right answers on the device".into());
        self.catalog.oracle().ok_or_else(nobody)?.answer(&self.problem, inputs, device)
    }

    fn count(&self) -> usize {
        self.catalog.variants().len()
    }

    fn id(&self, at: usize) -> &str {
        self.catalog.variants()[at].id()
    }

    fn source(&self, at: usize) -> SourceHash {
        self.catalog.variants()[at].source()
    }

    fn is_library(&self, at: usize) -> bool {
        self.catalog.variants()[at].is_library()
    }

    fn is_usual(&self, at: usize) -> bool {
        self.catalog.variants()[at].is_usual()
    }

    fn fit(&self, at: usize, device: &D) -> Fit {
        self.catalog.variants()[at].fit(&self.problem, device)
    }

    fn space(&self, at: usize, device: &D) -> Space {
        self.catalog.variants()[at].space(&self.problem, device)
    }

    fn needs(&self, at: usize, config: &Config) -> Needs {
        self.catalog.variants()[at].needs(&self.problem, config)
    }

    fn floor(&self, at: usize, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        self.catalog.variants()[at].floor(&self.problem, config, ceilings)
    }

    fn compile(&self, at: usize, config: &Config, device: &D) -> Result<(), Rejection> {
        self.catalog.variants()[at].compile(&self.problem, config, device)
    }

    fn build(&self, at: usize, config: &Config, device: &D) -> Result<Box<dyn Kernel<D>>, Rejection> {
        self.catalog.variants()[at].build(&self.problem, config, device)
    }

    fn sandbox(&self, request: &SandboxRequest, device: &D) -> Option<Result<Passed, Rejection>> {
        if O::AT_HOME { None } else { device.sandbox(request) }
    }

    fn call_worker(&self, device: &D) {
        if !O::AT_HOME {
            device.call_worker();
        }
    }
}
