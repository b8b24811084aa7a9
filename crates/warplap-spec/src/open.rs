//! Opening a spec: a device and a store come in; a tuner goes out. Before that, `ready` finds out whether anything of
//! it can be built at all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warplap::any::{AnyDevice, AnyTuner};
use warplap::core::candidate::SourceHash;
use warplap::core::catalog::Catalog;
use warplap::core::device::Device;
use warplap::core::rejection::Rejection;
use warplap::core::space::Config;
use warplap::core::store::Store;
use warplap::core::variant::Variant;
use warplap::{Cpu, Cuda, Op, Settings, Tuner};

use crate::c::{Apart, OwnC, PlainC, Runs};
use crate::cuda::{OwnCuda, PlainCuda, Right};
use crate::error::SpecError;
use crate::op::{KernelFile, KernelProblem};
use crate::spec::{Language, Reference, Spec};

/// Configs tried before a kernel counts as one that never compiles.
const TRIES: usize = 24;
/// Time after which no further one is tried.
const PATIENCE: Duration = Duration::from_secs(60);

impl Spec {
    /// The problem's text, for the tuner that [`Spec::open`] gives.
    pub fn problem(self: &Arc<Self>) -> String {
        KernelFile::text(&KernelProblem::new(self))
    }

    /// Builds what everything else needs: the reference, which must give an answer, and one config at least. A
    /// reference in CUDA needs a device: see [`Spec::ready_on`].
    pub fn ready(self: &Arc<Self>) -> Result<(), SpecError> {
        if self.is_judged_afar() {
            return Ok(());
        }
        let refused = |why: String| self.blames_the_reference(why);
        if let Reference::Kernel(code) = &self.reference {
            let built = self.workshop().and_then(|w| w.reference(self).map(drop));
            let path = code.path.display();
            built.map_err(|e| refused(format!("the reference {path} cannot be used: {e}: expected it to run")))?;
        }
        if self.language == Language::C {
            self.one_builds(|config| self.workshop().and_then(|w| w.own(self, config).map(drop)))?;
        }
        let inputs = self.draw(&mut fastrand::Rng::with_seed(1));
        let answer = self.answer(&inputs);
        let answer = answer.map_err(|e| refused(format!("the reference gives no answer: {e}: expected one")))?;
        for (argument, values) in self.written().zip(&answer) {
            if let Some(at) = values.iter().position(|v| v.is_nan()) {
                let reason = format!(
                    "the reference leaves element {at} of '{}' unwritten or NaN: expected a number everywhere",
                    argument.name
                );
                return Err(refused(reason));
            }
        }
        Ok(())
    }

    /// Whatever is wrong with the reference, the line that names it is where to look.
    fn blames_the_reference(&self, why: String) -> SpecError {
        SpecError { line: self.reference_line, ..SpecError::new(&self.file, why) }
    }

    /// As [`Spec::ready`], with what only the device can tell: whether it counts energy where the objective needs it,
    /// whether a CUDA kernel compiles at all, and whether a reference in CUDA gives an answer, in a worker first.
    pub fn ready_on(self: &Arc<Self>, device: &AnyDevice) -> Result<(), SpecError> {
        if self.objective.needs_energy() && device.joules().is_none() {
            let reason = format!(
                "metric.objective '{}' needs energy, and {} does not tell any: expected a GPU whose NVML has a counter, or \
                 objective = \"time\"",
                self.objective.name(),
                device.fingerprint().slug(),
            );
            return Err(SpecError { line: self.objective_line, ..SpecError::new(&self.file, reason) });
        }
        self.ready()?;
        match (self.language, device) {
            (Language::Cuda, AnyDevice::Cuda(cuda)) => {
                let (own, problem) = (OwnCuda(self.clone()), KernelProblem::new(self));
                self.one_builds(|config| own.compile(&problem, config, cuda))?;
                if self.is_judged_afar() { self.answers_on(cuda) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Whether the kernel that gives the right answers can be relied on.
    fn answers_on(self: &Arc<Self>, cuda: &Cuda) -> Result<(), SpecError> {
        let Err(why) = Right(self.clone()).proved(cuda) else { return Ok(()) };
        Err(self.blames_the_reference(match &self.reference {
            Reference::Cuda(code, _) => {
                let path = code.path.display();
                format!("the reference {path} cannot be used: {why}: expected it to run and to write every element")
            }
            _ => {
                let config = self.default_config().to_string();
                let config = if config.is_empty() { config } else { format!(" ({config})") };
                format!(
                    "there is no [reference], and the kernel at its default config{config} cannot be one: {why}: expected it \
                     to run and to write every element, or a [reference] that states what is right"
                )
            }
        }))
    }

    /// Whether any config builds: the default one, or some of the others.
    fn one_builds(&self, build: impl Fn(&Config) -> Result<(), Rejection>) -> Result<(), SpecError> {
        let started = Instant::now();
        let Err(first) = build(&self.default_config()) else { return Ok(()) };
        let mut rng = fastrand::Rng::with_seed(0);
        let others = (1..TRIES).filter_map(|_| self.space.sample(&mut rng));
        let mut tried = 1;
        for config in others.take_while(|_| started.elapsed() < PATIENCE) {
            match build(&config) {
                Err(Rejection::DoesNotBuild { .. }) => tried += 1,
                _ => return Ok(()),
            }
        }
        let Rejection::DoesNotBuild { reason } = first else { return Ok(()) };
        let reason = format!("none of {tried} configs compiles: {reason}: expected at least one that does");
        Err(SpecError::new(&self.code.path, reason))
    }

    /// A tuner of this kernel on a device. A C kernel runs on the CPU, a CUDA kernel on an NVIDIA GPU.
    pub fn open(
        self: &Arc<Self>,
        device: &AnyDevice,
        store: Store,
        settings: Settings,
    ) -> Result<Box<dyn AnyTuner>, SpecError> {
        let settings = Settings { objective: self.objective.clone(), ..settings };
        match (self.language, device) {
            (Language::C, AnyDevice::Cpu(cpu)) => {
                let device = Arc::new(Apart::new(self.builder(cpu)));
                Ok(Box::new(Tuner::new(device, self.apart(), store, settings)))
            }
            (Language::Cuda, AnyDevice::Cuda(cuda)) => {
                Ok(Box::new(Tuner::new(cuda.clone(), self.on_cuda(), store, settings)))
            }
            (language, _) => {
                let expected = if language == Language::C { "cpu" } else { "cuda" };
                let reason = format!("the kernel is in {}: expected --device {expected}", language.name());
                Err(SpecError::new(&self.file, reason))
            }
        }
    }

    /// Who may race on the CPU, each in a process of its own: the reference, where it is a kernel, and the kernel itself.
    pub fn apart(self: &Arc<Self>) -> Catalog<KernelFile, Apart> {
        self.in_c()
    }

    /// The same in the caller's own process, for programs that call a winner there by the record that a race in
    /// processes of their own has left. After one call elsewhere whatever a kernel does it does to the caller: a fault
    /// ends the program. A tuner over this catalog should only replay.
    pub fn on_cpu(self: &Arc<Self>) -> Catalog<KernelFile, Cpu> {
        self.in_c()
    }

    fn in_c<D: Runs>(self: &Arc<Self>) -> Catalog<KernelFile, D> {
        let own = Arc::new(OwnC(self.clone()));
        match &self.reference {
            Reference::Kernel(_) => Catalog::new(Arc::new(PlainC(self.clone()))).with(own),
            _ => Catalog::new(own),
        }
    }

    /// Who may race on a GPU: the reference, where it is a kernel in CUDA, and the kernel itself. Callers and their
    /// workers ask here, so that both have the same right answers.
    pub fn on_cuda(self: &Arc<Self>) -> Catalog<KernelFile, Cuda> {
        let own = Arc::new(OwnCuda(self.clone()));
        let catalog = match &self.reference {
            Reference::Cuda(..) => Catalog::new(Arc::new(PlainCuda(self.clone()))).with(own),
            _ => Catalog::new(own),
        };
        match self.is_judged_afar() {
            true => catalog.with_oracle(Arc::new(Right(self.clone()))),
            false => catalog,
        }
    }

    /// The CPU with threads that compile ahead: one core is left for whoever proves and measures.
    fn builder(&self, cpu: &Arc<Cpu>) -> Arc<Cpu> {
        let builders = cpu.threads().saturating_sub(1).min(16);
        let with = Cpu::with_threads(cpu.threads()).with_builders(builders);
        if let Some(ceilings) = cpu.ceilings() {
            with.set_ceilings((*ceilings).clone());
        }
        Arc::new(with)
    }

    /// The identity of the kernel's code, with the compiler that builds it.
    pub(crate) fn hash(&self, part: &str) -> SourceHash {
        let compiler = self.workshop().map_or_else(|e| e.to_string(), |w| w.version().to_string());
        SourceHash::of(&[part, self.identity(), &compiler])
    }
}
