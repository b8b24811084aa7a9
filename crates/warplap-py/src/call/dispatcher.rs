//! Desks: an operation's tuner with what it has chosen so far. A problem comes in; its kernel of choice, ready to be
//! run on a call's memory, goes out.

use std::sync::Arc;
use std::time::Instant;

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
use crate::call::turns::{Turn, Turns};
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
    pub(crate) foreign: Option<Arc<Choice>>,
    /// Whether nothing was decided about it: a library answers, or the first that fits.
    pub(crate) undecided: bool,
    /// Whether one launch is so short that other threads need not be let in.
    brief: bool,
    signature: Signature,
    /// Who answers in turns with it, until it is known which of the two is faster in the program's own calls.
    turns: Option<Turns<D>>,
}

impl<D: LaunchDevice> Entry<D> {
    /// The same without a rival.
    fn alone(&self) -> Entry<D> {
        let Entry { kernel, foreign, undecided, brief, signature, .. } = self;
        let (kernel, foreign, signature) = (kernel.clone(), foreign.clone(), signature.clone());
        Entry { kernel, foreign, undecided: *undecided, brief: *brief, signature, turns: None }
    }

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
    pub(crate) tuner: Arc<Tuner<O, D>>,
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
        let run = |entry: &Entry<D>| match &entry.turns {
            None => f(entry),
            Some(turns) => self.in_turns(problem, entry, turns, &mut f),
        };
        if let Ok(done) = self.ready.with(problem, run) {
            return done;
        }
        let mut call = |entry: &Entry<D>| f(entry).map(drop);
        let (entry, device) = (self.choose(py, problem, queue, &mut call)?, self.tuner.device());
        match device.busy(queue) {
            // A library may load its kernel when it is first launched, which would break a capture.
            Some(_) => device.beside_capture(|| f(&entry)),
            None => f(&entry),
        }
    }

    /// A call by whoever's turn it is. The disk is for another thread.
    #[cold]
    fn in_turns<R>(
        &self,
        problem: &O::Problem,
        entry: &Entry<D>,
        turns: &Turns<D>,
        f: &mut impl FnMut(&Entry<D>) -> PyResult<R>,
    ) -> PyResult<R> {
        let Some(lane) = turns.lane() else { return f(entry) };
        let (began, chosen) = (Instant::now(), if lane == 0 { entry } else { &*turns.rival });
        let done = match f(chosen) {
            // Right on tensors that were drawn, and of these it wants nothing: the winner says what there is to say.
            Err(_) if lane == 1 => {
                self.ready.put(problem.clone(), Arc::new(entry.alone()));
                return f(entry);
            }
            done => done?,
        };
        if let Turn::Decided(race) = turns.took(lane, began.elapsed().as_secs_f64()) {
            let is_rival = turns.wins(&race);
            self.ready.put(problem.clone(), Arc::new(if is_rival { &*turns.rival } else { entry }.alone()));
            self.tuner.settle_beside(problem, race);
        }
        Ok(done)
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
        let mut entry = entry(&self.tuner, py, problem, &chosen.candidate, chosen.kernel, undecided)?;
        let raced = matches!(chosen.how, How::Raced) && !settings.stop.said();
        if settings.mode == Mode::Background && !undecided {
            entry = beside_a_rival(&self.tuner, py, problem, &chosen.candidate, entry)?;
        } else if raced {
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
        let Some((Rival { candidate: rival, is_library }, kernel)) = rival(tuner, problem) else { return Ok(entry) };
        let other = self::entry(tuner, py, problem, &rival, kernel, false)?;
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

/// A candidate's kernel, ready to be run.
fn entry<O: Op, D: LaunchDevice>(
    _: &Tuner<O, D>,
    py: Python<'_>,
    problem: &O::Problem,
    candidate: &Candidate,
    kernel: Arc<dyn Kernel<D>>,
    undecided: bool,
) -> PyResult<Arc<Entry<D>>> {
    let signature = O::signature(problem);
    let foreign = foreign::find::<O, D>(py, problem, &signature, candidate)?.map(Arc::new);
    let brief = !D::LAUNCH_IS_CALL || problem.work().flops < BRIEF_FLOPS;
    Ok(Arc::new(Entry { kernel, foreign, undecided, brief, signature, turns: None }))
}

/// Who the winner of a problem's race meets in a program's own calls, and its kernel.
fn rival<O: Op, D: LaunchDevice>(tuner: &Tuner<O, D>, problem: &O::Problem) -> Option<(Rival, Arc<dyn Kernel<D>>)> {
    let strangers = foreign::of(O::NAME, D::KIND);
    let rival = tuner.rival(problem, |id| strangers.iter().any(|f| f.is(id) && f.is_library()))?;
    let kernel = tuner.built(problem, &rival.candidate)?;
    Some((rival, kernel))
}

/// The winner of a race in the background, which answers in turns with its rival until it is known who is faster in the
/// program's own calls. On a GPU calls return before the work is done: what the race said stands.
fn beside_a_rival<O: Op, D: LaunchDevice>(
    tuner: &Tuner<O, D>,
    py: Python<'_>,
    problem: &O::Problem,
    winner: &Candidate,
    ready: Arc<Entry<D>>,
) -> PyResult<Arc<Entry<D>>> {
    if !D::LAUNCH_IS_CALL || !tuner.settings().objective.is_time() {
        return Ok(ready);
    }
    let Some((rival, kernel)) = py.detach(|| rival(tuner, problem)) else { return Ok(ready) };
    let other = entry(tuner, py, problem, &rival.candidate, kernel, false)?;
    let turns = Turns::new(other, winner, &rival.candidate, usize::from(rival.is_library));
    Ok(Arc::new(Entry { turns: Some(turns), ..ready.alone() }))
}

/// Chooses anew for every problem that something was chosen for, on the thread that raced: no call waits for a kernel
/// to be built, for the store, or for a last heat.
fn renew<O: Raced<D>, D: LaunchDevice>(tuner: &Tuner<O, D>, ready: &Dispatch<O::Problem, Entry<D>>) {
    let device = tuner.device();
    for problem in ready.problems() {
        let chosen = device.beside_capture(|| tuner.choose_on(&problem, device.queue()));
        let again = chosen.ok().and_then(|chosen| {
            Python::try_attach(|py| {
                let undecided = matches!(chosen.how, How::Default(_));
                let entry = entry(tuner, py, &problem, &chosen.candidate, chosen.kernel, undecided)?;
                if undecided { Ok(entry) } else { beside_a_rival(tuner, py, &problem, &chosen.candidate, entry) }
            })
        });
        match again {
            Some(Ok(entry)) => ready.put(problem, entry),
            // The next calls say why.
            _ => return ready.clear(),
        }
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
        let dispatcher = OpDispatcher { tuner: Arc::new(tuner), ready: Arc::default() };
        let (tuner, ready) = (Arc::downgrade(&dispatcher.tuner), dispatcher.ready.clone());
        dispatcher.tuner.when_replaced(move || {
            if let Some(tuner) = tuner.upgrade() {
                renew(&*tuner, &ready);
            }
        });
        dispatcher
    }
}
