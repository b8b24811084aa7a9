//! The last heat: who answers is settled in the form a program calls it. A race times kernels; a call has a cost of its
//! own besides, which differs between a kernel of ours and a library's function. So whoever owns the call (the Python
//! package) lets the winner meet the best of the other kind once more, through the call itself, and says here who is to
//! answer.

use std::collections::HashMap;
use std::sync::Arc;

use crate::candidate::Candidate;
use crate::candidates::variant::Kernel;
use crate::contest::verdict::WonBy;
use crate::device::Device;
use crate::engine::background;
use crate::engine::tuning_engine::{is_current, locked};
use crate::engine::{How, Tuner};
use crate::measure::Behind;
use crate::model::erased::ErasedProblem;
use crate::model::op::Op;
use crate::ranking::Ranked;
use crate::record::{EndToEndRace, TuningRun};

/// A kernel of ours that is behind a library by more than this factor in the race has nothing to hope for from a cheaper
/// call. A library is asked however far behind: what it is like in a program is what we promise not to fall behind.
const NEAR: f64 = 2.0;

/// Who meets the winner of a race in a last heat.
pub struct Rival {
    /// Who.
    pub candidate: Candidate,
    /// Whether it is the library's function of the two.
    pub is_library: bool,
}

impl<O: Op, D: Device> Tuner<O, D> {
    /// The fastest right candidate for a problem's key that is not of the winner's kind: a library's where the winner is
    /// none, and the other way round. Libraries of the host program, which are named by `hosts`, go before ours. `None`
    /// where there is nobody of that kind with a chance, or the two have met already.
    pub fn rival(&self, problem: &O::Problem, hosts: impl Fn(&str) -> bool) -> Option<Rival> {
        let key = self.key(problem);
        // Nobody runs for the first time in a program's own calls.
        let erased = self.erased(problem);
        let erased: &dyn ErasedProblem<D> = &erased;
        let edition = self.engine.current(&key, erased).filter(|e| e.origin == self.store().id())?;
        if let Some((_, how)) = locked(&self.engine.known.winners).get_mut(&key.text) {
            // Asked once: other problems of the key need no heat of their own.
            *how = How::Stored;
        }
        let winner = &edition.verdict.winner;
        let ranked = edition.ranked();
        // Where the host program has libraries of its own, its users would call those.
        let hosted = edition.trials.iter().any(|t| t.is_right() && hosts(&t.candidate.variant));
        let is_library = |id: &str| if hosted { hosts(id) } else { erased.find(id).is_some_and(|r| r.is_library()) };
        let other = |c: &Candidate| is_library(&c.variant) != is_library(&winner.variant);
        let met = edition.end_to_end_race.is_some();
        let mut others = ranked.iter().filter(|r| !met && other(&r.trial.candidate));
        let hopes = |r: &&Ranked<'_>| is_library(&r.trial.candidate.variant) || 1.0 + r.behind <= NEAR;
        let may = |c: &Candidate| is_current(erased, c) && self.engine.usable(c, erased);
        let candidate = others.find(|r| hopes(r) && may(&r.trial.candidate))?.trial.candidate.clone();
        Some(Rival { is_library: is_library(&candidate.variant), candidate })
    }

    /// A candidate's kernel for a problem, where it can be built.
    pub fn built(&self, problem: &O::Problem, candidate: &Candidate) -> Option<Arc<dyn Kernel<D>>> {
        let erased = self.erased(problem);
        let erased: &dyn ErasedProblem<D> = &erased;
        let runner = erased.find(&candidate.variant).filter(|_| self.engine.usable(candidate, erased))?;
        runner.build(&candidate.config, self.device()).ok().map(Into::into)
    }

    /// As [`Tuner::settle`], for somebody who waits for no disk: the process's own thread for races takes note.
    pub fn settle_beside(self: &Arc<Self>, problem: &O::Problem, gpu_contest: EndToEndRace) {
        let (tuner, problem) = (self.clone(), problem.clone());
        background::send(Box::new(move |_| tuner.settle(&problem, gpu_contest)));
    }

    /// Takes note of a last heat: from now on its winner answers.
    pub fn settle(&self, problem: &O::Problem, gpu_contest: EndToEndRace) {
        let (key, erased) = (self.key(problem), self.erased(problem));
        let Some(mut edition) = self.engine.current(&key, &erased).filter(|_| is_current(&erased, &gpu_contest.winner))
        else {
            return;
        };
        if edition.verdict.winner != gpu_contest.winner {
            turn(&mut edition, &gpu_contest);
        }
        edition.end_to_end_race = Some(gpu_contest);
        let winner = edition.verdict.winner.clone();
        let text = O::text(problem);
        if let Err(error) = self.store().put(&key, self.device().fingerprint(), edition.clone(), &text) {
            tracing::warn!("the last heat of {key} was not kept: {error}");
            locked(&self.engine.unkept).insert(key.text.clone(), edition);
        }
        locked(&self.engine.known.winners).insert(key.text.clone(), (winner, How::Stored));
        locked(&self.engine.known.sizes).remove(&key.text);
        self.ready.clear();
    }
}

/// Puts the winner of a last heat in the place of the race's. Everyone else stays behind that one, and is so much
/// further behind.
fn turn(edition: &mut TuningRun, gpu_contest: &EndToEndRace) {
    let further = |by: f64| ((1.0 + by) * (1.0 + gpu_contest.gap) - 1.0).max(0.0);
    let place = |ranked: &Ranked<'_>| {
        let [low, high] = ranked.ci.unwrap_or([ranked.behind; 2]);
        let by = if ranked.trial.candidate == gpu_contest.winner { 0.0 } else { further(ranked.behind) };
        (ranked.trial.candidate.clone(), Behind { by, ci: [further(low), further(high)] })
    };
    let behind: HashMap<Candidate, Behind> = edition.ranked().iter().map(place).collect();
    edition.trials.iter_mut().for_each(|trial| trial.place(&behind));
    let measured = edition.trials.iter().find(|t| t.candidate == gpu_contest.winner).and_then(|t| t.measurement());
    let verdict = &mut edition.verdict;
    if let Some(measured) = measured {
        (verdict.median_us, verdict.ci_us) = (measured.median_us, measured.ci_us);
    }
    verdict.runner_up = Some(std::mem::replace(&mut verdict.winner, gpu_contest.winner.clone()));
    // What is known of kernels alone says nothing of calls.
    (verdict.margin, verdict.ties, verdict.won_by, verdict.confidence) =
        (Some(gpu_contest.gap), Vec::new(), WonBy::Call, 0.0);
}
