//! Desks: an operation's tuner with what it has chosen so far. A problem comes in; its kernel of choice, ready to be
//! run on a call's memory, goes out.

use std::sync::Arc;

use pyo3::prelude::*;
use warplap::core::by_type::ByType;
use warplap::core::candidate::Candidate;
use warplap::core::catalog::{Catalog, Raced};
use warplap::core::dispatch::Dispatch;
use warplap::core::engine::Rival;
use warplap::core::op::Op;
use warplap::core::problem::Problem;
use warplap::core::rejection::Rejection;
use warplap::core::slot::{Signature, Slot};
use warplap::core::store::Store;
use warplap::core::variant::Kernel;
use warplap::{Arg, How, Mode, Settings, Tuner};

use crate::api::watch::{Line, Watch, ended};
use crate::call::end_to_end_race;
use crate::call::failure::{raise, rejected};
use crate::call::state::refresh;
use crate::foreign::{self, Choice, Foreign};
use crate::tensor::argument::{self, Checked};
use crate::tensor::kernel_argument::LaunchDevice;

/// Work below which the interpreter's lock is kept during a launch: some microseconds.
const BRIEF_FLOPS: f64 = 4e5;

/// The caller's own tensors, one a slot: made where a callable was chosen, which needs no views of them.
pub(crate) type Tensors<'t, 'py, const N: usize> = &'t dyn Fn() -> PyResult<[Option<Bound<'py, PyAny>>; N]>;

/// A problem's kernel of choice.
pub(crate) struct Entry<D: LaunchDevice> {
    kernel: Arc<dyn Kernel<D>>,
    /// The callable itself, where the choice is a foreign one.
    pub(crate) foreign: Option<Choice>,
    /// Whether nothing was decided about it: a library answers, or the first that fits.
    pub(crate) undecided: bool,
    /// Whether one launch is so short that other threads need not be let in.
    brief: bool,
    signature: Signature,
}

impl<D: LaunchDevice> Entry<D> {
    /// Runs it on memory of its device; a callable gets the tensors, where there are some.
    #[inline]
    pub(crate) fn run<'py, const N: usize>(
        &self,
        py: Python<'py>,
        queue: &D::Queue,
        memory: &Checked<'_, N>,
        tensors: Option<Tensors<'_, 'py, N>>,
    ) -> PyResult<()> {
        if let (Some(foreign), Some(tensors)) = (&self.foreign, tensors) {
            return foreign.write(py, &tensors()?);
        }
        let (mut args, count) = (self.kernel_arguments(memory)?, self.signature.slots().len().min(N));
        let args = &mut args[..count];
        D::launch(py, &*self.kernel, args, queue, self.brief).map_err(|e| self.refused(args, &e))
    }

    /// A call's memory as arguments, one a slot; behind the last slot there is nothing.
    #[inline]
    pub(crate) fn kernel_arguments<'a, const N: usize>(&self, memory: &'a Checked<'_, N>) -> PyResult<[Arg<'a, D>; N]> {
        let mut args: [Arg<'a, D>; N] = [const { Arg::Absent }; N];
        for (i, passed) in memory.call_arguments().iter().enumerate() {
            let Some(view) = passed.view else { continue };
            // SAFETY: the caller holds references to the objects behind the views for the time of this call; they were
            // found in one place, and what is written to share nothing with the others.
            let kernel_arguments = unsafe { D::arg(view, passed.written) };
            // Where a launch is a call nobody insists on more than the element's own, which was seen to.
            let has_layout = |slot: &Slot| D::LAUNCH_IS_CALL || view.lies_on(slot.align);
            match kernel_arguments.filter(|_| self.signature.slots().get(i).is_none_or(has_layout)) {
                Some(kernel_arguments) => args[i] = kernel_arguments,
                None => return Err(self.unaligned(passed.name, i)),
            }
        }
        Ok(args)
    }

    #[cold]
    fn unaligned(&self, name: &str, slot: usize) -> PyErr {
        let usual = |s: &Slot| if D::LAUNCH_IS_CALL { s.dtype.bytes() } else { s.align };
        argument::unaligned(name, self.signature.slots().get(slot).map_or(1, usual))
    }

    /// Why a launch failed: by the name of an argument, if one is not what the problem says.
    #[cold]
    fn refused(&self, args: &[Arg<'_, D>], rejection: &Rejection) -> PyErr {
        let taken = args.iter().zip(self.signature.slots()).any(|(a, s)| s.is_written() && matches!(a, Arg::Absent));
        match self.signature.check(args) {
            Err(error) if !taken => raise(error),
            _ => rejected(rejection),
        }
    }
}

/// A tuner over an operation's own variants and the foreign ones.
pub(crate) fn tuner<O: Raced<D>, D: LaunchDevice>(device: Arc<D>, store: Store, settings: Settings) -> Tuner<O, D> {
    let join = |catalog: Catalog<O, D>, face| catalog.with(Arc::new(Foreign::new(face)));
    let catalog = foreign::of(O::NAME, D::KIND).into_iter().fold(O::catalog(), join);
    Tuner::new(device, catalog, store, settings)
}

/// The tuner of one operation and what it has chosen so far.
pub(crate) struct OpDispatcher<O: Op, D: LaunchDevice> {
    pub(crate) tuner: Tuner<O, D>,
    ready: Arc<Dispatch<O::Problem, Entry<D>>>,
}

impl<O: Op, D: LaunchDevice> OpDispatcher<O, D> {
    /// Hands the choice for a problem to `f`. What is not known is raced with the interpreter's lock given up.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        py: Python<'_>,
        problem: &O::Problem,
        queue: &D::Queue,
        mut f: impl FnMut(&Entry<D>) -> PyResult<R>,
    ) -> PyResult<R> {
        match self.ready.with(problem, &mut f) {
            Ok(done) => done,
            Err(_) => {
                let mut call = |entry: &Entry<D>| f(entry).map(drop);
                let (entry, device) = (self.choose(py, problem, queue, &mut call)?, self.tuner.device());
                match device.busy(queue) {
                    // A library may load its kernel when it is first launched, which would break a capture.
                    Some(_) => device.beside_capture(|| f(&entry)),
                    None => f(&entry),
                }
            }
        }
    }

    /// Hands the choice for a problem to `f`, where it was made already.
    #[inline]
    pub(crate) fn if_known<R>(&self, problem: &O::Problem, f: impl FnOnce(&Entry<D>) -> R) -> Option<R> {
        self.ready.with(problem, f).ok()
    }

    /// Whether a choice was made already.
    pub(crate) fn knows(&self, problem: &O::Problem) -> bool {
        self.if_known(problem, |_| ()).is_some()
    }

    /// Chooses for a problem; `call` is the caller's own call, which may be made again with any choice.
    #[cold]
    fn choose(
        &self,
        py: Python<'_>,
        problem: &O::Problem,
        queue: &D::Queue,
        call: &mut dyn FnMut(&Entry<D>) -> PyResult<()>,
    ) -> PyResult<Arc<Entry<D>>> {
        let settings = self.tuner.settings();
        let may_race = settings.mode == Mode::Tune && self.tuner.device().busy(queue).is_none();
        let races = may_race && !self.tuner.knows_key(problem);
        let line = if races { Line::new(py) } else { Line::default() };
        let tell = line.tell(py);
        // Ctrl-C is heard while a race goes on.
        let watch = Watch { stop: settings.stop.clone(), tell };
        let chosen = py.detach(|| self.tuner.choose_watched(problem, queue, &watch));
        drop(line);
        if settings.stop.said() {
            refresh();
        }
        let chosen = ended(chosen)?;
        // What was chosen because a stream is captured is chosen again afterwards.
        let lasts = self.tuner.with_known(problem, |_| ()).is_ok();
        let undecided = matches!(chosen.how, How::Default(_));
        let mut entry = self.entry(py, problem, &chosen.candidate, chosen.kernel, undecided)?;
        let raced = chosen.how == How::Raced || (chosen.how == How::Stored && settings.mode == Mode::Background);
        if raced && !settings.stop.said() {
            entry = self.end_to_end_race(py, problem, queue, (&chosen.candidate, entry), call)?;
        }
        if lasts {
            self.ready.put(problem.clone(), entry.clone());
            if undecided && !self.tuner.answers(problem, &chosen.candidate) {
                // The winner of a race in the background took over meanwhile.
                self.ready.clear();
            }
        }
        Ok(entry)
    }

    fn entry(
        &self,
        py: Python<'_>,
        problem: &O::Problem,
        candidate: &Candidate,
        kernel: Arc<dyn Kernel<D>>,
        undecided: bool,
    ) -> PyResult<Arc<Entry<D>>> {
        let signature = O::signature(problem);
        let foreign = foreign::find::<O, D>(py, problem, &signature, candidate)?;
        let brief = !D::LAUNCH_IS_CALL || problem.work().flops < BRIEF_FLOPS;
        Ok(Arc::new(Entry { kernel, foreign, undecided, brief, signature }))
    }

    /// Lets the winner of a race meet the best of the other kind in the caller's own call: a library's function where the
    /// winner is a kernel of ours, and the other way round. Who is faster there answers from now on.
    fn end_to_end_race(
        &self,
        py: Python<'_>,
        problem: &O::Problem,
        queue: &D::Queue,
        (winner, entry): (&Candidate, Arc<Entry<D>>),
        call: &mut dyn FnMut(&Entry<D>) -> PyResult<()>,
    ) -> PyResult<Arc<Entry<D>>> {
        let (tuner, device) = (&self.tuner, self.tuner.device());
        // What is written over in place cannot be computed twice, and what is captured must not be.
        let in_place = entry.signature.slots().iter().any(|s| s.is_read() && s.is_written());
        if in_place || device.busy(queue).is_some() || !tuner.settings().objective.is_time() {
            return Ok(entry);
        }
        let strangers = foreign::of(O::NAME, D::KIND);
        let rival = tuner.rival(problem, |id| strangers.iter().any(|f| f.is(id) && f.is_library()));
        let Some(Rival { candidate: rival, is_library }) = rival else { return Ok(entry) };
        let Some(kernel) = tuner.built(problem, &rival) else { return Ok(entry) };
        let other = self.entry(py, problem, &rival, kernel, false)?;
        let budget = tuner.settings().budget.seconds;
        let mut calls = |lane: usize| call(if lane == 0 { &entry } else { &other });
        let library = usize::from(is_library);
        let Some(final_race) = end_to_end_race::run(&**device, queue, (winner, &rival), library, &mut calls, budget)
        else {
            return Ok(entry);
        };
        let lost = final_race.winner == rival;
        tuner.settle(problem, final_race);
        Ok(if lost { other } else { entry })
    }
}

/// The desks of one device, one an operation, set up when an operation is first asked for.
pub(crate) struct OpDispatchers<D: LaunchDevice> {
    pub(crate) device: Arc<D>,
    store: Store,
    settings: Settings,
    dispatchers: ByType,
}

impl<D: LaunchDevice> OpDispatchers<D> {
    pub(crate) fn new(device: Arc<D>, store: Store, settings: Settings) -> Self {
        OpDispatchers { device, store, settings, dispatchers: ByType::default() }
    }

    /// Where a call's launch is queued.
    #[inline]
    pub(crate) fn queue(&self, py: Python<'_>) -> D::Queue {
        self.device.current(py)
    }

    /// The desk of an operation.
    #[inline]
    pub(crate) fn of<O: Raced<D>>(&self) -> &OpDispatcher<O, D> {
        self.dispatchers.get(|| self.open())
    }

    #[cold]
    fn open<O: Raced<D>>(&self) -> OpDispatcher<O, D> {
        let mut settings = self.settings.clone();
        settings.budget.afterwards = end_to_end_race::SHARE;
        let tuner = tuner::<O, D>(self.device.clone(), self.store.clone(), settings);
        let dispatcher = OpDispatcher { tuner, ready: Arc::default() };
        let ready = dispatcher.ready.clone();
        dispatcher.tuner.when_replaced(move || ready.clear());
        dispatcher
    }
}
