//! `warplap tune`: problems come in; each is answered from the store or raced, and a table or JSON lines go out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use warplap::any::{AnyTuner, Operation, StoredAnswer, Wanted};
use warplap::core::candidate::{Candidate, Outcome};
use warplap::core::measure::{CacheState, Clock, Policy, Queueing};
use warplap::core::progress::Observer;
use warplap::core::record::TuningRun;
use warplap::core::rejection::Rejection;
use warplap::core::variant::Fit;
use warplap::{Bucket, How, Mode, Settings, Stop};

use super::until_clean;
use crate::answer::Answer;
use crate::console::{Console, DIM, GOOD, paint};
use crate::facts::{Subject, page};
use crate::failure::{Exit, Failure};
use crate::kept::{ceilings, write};
use crate::live::Live;
use crate::machine::{self, Machine};
use crate::progress::Progress;
use crate::race_args::{self, RaceArgs, seconds};
use crate::suite::{self, Asked};
use crate::table::{Cell, Table};
use crate::units;

/// Seconds the default suite may take in all: it must be over within a minute, ceilings and proofs included.
const SUITE_SECONDS: f64 = 42.0;

/// Seconds for a spec file that states none: its kernels have to be compiled.
const SPEC_SECONDS: f64 = 60.0;

/// Arguments of `tune`.
#[derive(Args)]
pub(crate) struct Tune {
    /// What to tune: op:field=value,…, or a spec file of your own kernel (default: some of every operation)
    #[arg(value_name = "PROBLEM|SPEC")]
    problems: Vec<String>,
    /// The operation of problems that name none; alone: the default suite's part
    #[arg(long, value_name = "OP")]
    op: Option<String>,
    /// A file with one problem a line
    #[arg(long, value_name = "FILE")]
    suite: Option<PathBuf>,
    /// With no problem: the whole default suite, gradients too, with as many seconds for each as any problem has
    #[arg(long, conflicts_with_all = ["problems", "suite", "misses"])]
    all: bool,
    /// Also what programs in mode record asked for and did not find
    #[arg(long)]
    misses: bool,
    #[command(flatten)]
    race: RaceArgs,
    /// Seconds for all problems together, shared out between those that are left
    #[arg(long, value_name = "S", value_parser = seconds)]
    total: Option<f64>,
    /// off: first choice; replay: the store alone; record: as replay, and remember misses; tune
    #[arg(long, value_name = "MODE", default_value = "tune", value_parser = race_args::mode)]
    mode: Mode,
    /// Sizes that share a key: changing (rows, positions), exact (none) or pow2 (all)
    #[arg(long, value_name = "BUCKET", default_value = "changing", value_parser = race_args::bucket)]
    bucket: Bucket,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Race on what is not decided yet until it is, or the seconds of --total (600) are over
    #[arg(long)]
    until_clean: bool,
    /// Keep a page that shows the race while it runs, and the verdict then (default report.html)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "report.html")]
    live: Option<PathBuf>,
}

/// One problem to tune, and how.
struct Job {
    asked: Asked,
    settings: Settings,
    /// Whether what is not decided is raced on; else whatever is known answers.
    goes_on: bool,
}

/// What is done about a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// The store answers.
    Answers,
    /// It is raced.
    Races,
    /// It is raced on.
    GoesOn,
}

/// What is done about a problem, and what is known of it.
struct Plan {
    does: Does,
    result: StoredAnswer,
}

impl Job {
    /// What will be done, where `goes_on` says that what is not decided is raced on.
    fn plan(&self, machine: &Machine, goes_on: bool) -> Result<Plan, Failure> {
        let result = self.tuner(machine)?.find(&self.asked.problem)?;
        let known = result.how == Some(How::Stored) && result.newcomers.is_empty() && !self.settings.again;
        let open = result.edition.as_ref().is_some_and(|e| e.verdict.grade.is_provisional());
        let does = match (known || self.settings.mode != Mode::Tune, open && goes_on) {
            (false, _) => Does::Races,
            (true, false) => Does::Answers,
            (true, true) => Does::GoesOn,
        };
        Ok(Plan { does, result })
    }

    fn tuner(&self, machine: &Machine) -> Result<Box<dyn AnyTuner>, Failure> {
        self.asked.open(&machine.device, machine.store.clone(), self.settings.clone())
    }

    /// What is said where not one config of a user's own kernel is right: that its reference answers is no result.
    fn nothing_right(&self, answer: &Answer) -> Option<String> {
        let (spec, edition) = (self.asked.spec()?, answer.edition.as_ref()?);
        let is_own = |id: &str| answer.variants.iter().any(|v| v.id == id && !v.reference && !v.library);
        let own = edition.trials.iter().filter(|t| is_own(&t.candidate.variant) && !t.is_unseen());
        let mut rejections = Vec::new();
        for trial in own {
            match &trial.outcome {
                Outcome::Rejected(rejection) if !trial.is_right() => rejections.push((&trial.candidate, rejection)),
                _ => return None,
            }
        }
        let is_wrong = |(_, rejection): &&(&Candidate, &Rejection)| matches!(rejection, Rejection::WrongAnswer { .. });
        let (candidate, why) = rejections.iter().find(is_wrong).or(rejections.first())?;
        let (count, name) = (units::some(rejections.len(), "config", "configs"), &spec.name);
        Some(format!("{name}: not one of {count} is right, and the reference answers: {candidate}: {why}"))
    }
}

impl Tune {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        // Everything is read before anything is opened: bad input changes nothing.
        let op = suite::operation(self.op.as_deref())?;
        let asked = self.asked(op)?;
        let stop = machine::listen(console);
        let wanted = self.wanted(asked.as_deref().unwrap_or_default())?;
        let machine = if self.dry_run { Machine::open_to_read(root, wanted) } else { Machine::open(root, wanted) }?;
        let kind = machine.device.kind();
        let usual = || if self.is_first() { suite::first(kind) } else { suite::default(op, kind) };
        let asked = asked.map_or_else(usual, Ok)?;
        let mut jobs = self.jobs(asked, &machine, &stop);
        if jobs.is_empty() {
            console.log("there is nothing to tune");
        }
        if self.dry_run {
            return self.dry_run(&mut jobs, &machine, console);
        }
        make_ready(&jobs, &machine, self.until_clean)?;
        if let Some(file) = &self.live {
            console.log(format_args!("the race is shown in {}", shown_as(file)));
        }
        let started = Instant::now();
        // Once a machine, whatever a problem's budget: reports say how far from the best there can be a time is.
        for job in jobs.iter().filter(|job| job.settings.mode == Mode::Tune && job.asked.spec().is_none()) {
            if job.plan(&machine, self.until_clean)?.does != Does::Answers {
                machine.device.measured_ceilings(&machine.store);
                break;
            }
        }
        let progress = Progress::new(console, jobs.len());
        let (mut answers, mut failed) = (Vec::new(), 0);
        let mut open = Vec::new();
        let count = jobs.len();
        for (n, job) in jobs.iter_mut().enumerate() {
            if stop.said() {
                break;
            }
            self.share_out(&mut job.settings, started.elapsed().as_secs_f64(), count - n);
            match self.answer(job, &machine, &progress.begin(n, &job.asked.problem)) {
                Ok(answer) => {
                    if console.json {
                        console.line(&answer.json())?;
                    }
                    progress.done(n, &answer.news());
                    if let Some(why) = job.nothing_right(&answer) {
                        failed += 1;
                        console.warn(why);
                    }
                    failed += usize::from(self.mode == Mode::Replay && answer.edition.is_none());
                    if answer.is_open() {
                        open.push((n, answers.len()));
                    }
                    answers.push(answer);
                }
                Err(e) => {
                    failed += 1;
                    if console.json {
                        let (op, problem) = (job.asked.op(), &job.asked.problem);
                        console.line(&json!({"op": op, "problem": problem, "error": e.to_string()}))?;
                    }
                    console.warn(format_args!("{}: {e}", job.asked.problem));
                }
            }
        }
        if self.until_clean && self.mode == Mode::Tune {
            self.go_on(&mut jobs, open, &mut answers, (&machine, &progress, console, started))?;
        }
        drop(progress);
        if !console.json && !answers.is_empty() {
            console.say(Answer::render(&answers, console.width()))?;
            console.say(self.footer(&answers, started.elapsed().as_secs_f64(), &machine))?;
        }
        if stop.said() {
            console.log(format_args!("interrupted after {} of {count}; run it again to go on", answers.len()));
            return Ok(Exit::Interrupted);
        }
        Ok(if failed > 0 { Exit::NoAnswer } else { Exit::Ok })
    }

    /// Races on what is open: the numbers of a job and its answer. Each pass has twice the seconds of the one before.
    fn go_on(
        &self,
        jobs: &mut [Job],
        mut open: Vec<(usize, usize)>,
        answers: &mut [Answer],
        (machine, progress, console, started): (&Machine, &Progress<'_>, &Console, Instant),
    ) -> Result<(), Failure> {
        let most = self.total.unwrap_or(until_clean::MOST_SECONDS);
        for pass in 0..until_clean::PASSES {
            for (n, at) in std::mem::take(&mut open) {
                let job = &mut jobs[n];
                let left = most - started.elapsed().as_secs_f64();
                if job.settings.stop.said() || left <= 0.0 {
                    return Ok(());
                }
                job.settings.budget.seconds = until_clean::seconds_of_pass(self.budget_of(job), pass).min(left);
                (job.settings.again, job.goes_on) = (false, true);
                let answer = match self.answer(job, machine, &progress.begin(n, &job.asked.problem)) {
                    Ok(answer) => answer,
                    // What was there stands.
                    Err(e) => {
                        console.warn(format_args!("{}: {e}", job.asked.problem));
                        continue;
                    }
                };
                if console.json {
                    console.line(&answer.json())?;
                }
                progress.done(n, &answer.news());
                if answer.is_open() {
                    open.push((n, at));
                }
                answers[at] = answer;
            }
        }
        Ok(())
    }

    /// Answers one job, and keeps its page where one is asked for.
    fn answer(&self, job: &Job, machine: &Machine, watch: &dyn Observer) -> Result<Answer, Failure> {
        let Some(file) = &self.live else { return answer(job, machine, watch) };
        let (tuner, problem) = (job.tuner(machine)?, job.asked.problem.as_str());
        let (variants, device, key) = (tuner.variants(Some(problem))?, tuner.device_slug(), tuner.key(problem)?.text);
        let subject = |bytes: f64| {
            let ceilings = ceilings(&machine.store, &device, problem, bytes);
            let (title, variants) = (job.asked.title(), &variants);
            Subject { asked: problem, title, problem, key: &key, device: &device, variants, ceilings, other_size: None }
        };
        let answer = answer(job, machine, &Live::new(watch, subject(0.0), file))?;
        if let Some(edition) = &answer.edition {
            write(file, page(&subject(edition.work.bytes).tuned(edition)).as_bytes(), "--live")?;
        }
        Ok(answer)
    }

    /// What was asked for; nothing, where the default suite is meant.
    fn asked(&self, op: Option<&'static Operation>) -> Result<Option<Vec<Asked>>, Failure> {
        if self.is_default() {
            return Ok(None);
        }
        let mut asked = Vec::new();
        for problem in &self.problems {
            asked.push(suite::asked(problem, op)?);
        }
        if let Some(path) = &self.suite {
            asked.extend(suite::read(path, op)?);
        }
        let mut seen = std::collections::HashSet::new();
        asked.retain(|a| seen.insert(a.problem.clone()));
        Ok(Some(asked))
    }

    /// The device all that was asked for can run on.
    fn wanted(&self, asked: &[Asked]) -> Result<Wanted, Failure> {
        let inputs = self.race.place.device;
        let mut wanted = asked.iter().filter(|a| a.spec().is_some()).map(|a| a.wanted(inputs));
        let first = wanted.next().unwrap_or(Ok(inputs))?;
        match wanted.find(|w| !matches!(w, Ok(w) if *w == first)) {
            None => Ok(first),
            Some(other) => {
                let other = other?;
                Err(Failure::input(format!("spec files for {first} and for {other}: expected those of one device")))
            }
        }
    }

    /// Whether nothing was asked for at all: then what is shown is decided within a minute.
    fn is_first(&self) -> bool {
        self.is_default() && self.op.is_none() && !self.all
    }

    fn is_default(&self) -> bool {
        self.problems.is_empty() && self.suite.is_none() && !self.misses
    }

    fn jobs(&self, asked: Vec<Asked>, machine: &Machine, stop: &Stop) -> Vec<Job> {
        let settings = self.race.settings(&machine.device, self.mode, self.bucket.clone(), stop);
        let job = |asked: Asked| {
            let mut settings = settings.clone();
            if let Some(spec) = asked.spec().filter(|_| self.race.budget.is_none()) {
                settings.budget.seconds = spec.budget.unwrap_or(SPEC_SECONDS);
            }
            Job { asked, settings, goes_on: self.race.again }
        };
        let mut jobs: Vec<Job> = asked.into_iter().map(job).collect();
        if self.misses {
            let slug = machine.device.fingerprint().slug();
            for missed in machine.store.misses().into_iter().filter(|m| m.device_slug() == slug) {
                // A record is data: one that is no problem to us is passed over.
                let Ok(asked) = suite::asked(&missed.problem, None) else { continue };
                let mut settings = settings.clone();
                settings.policy = missed_policy(&missed.key, settings.policy);
                settings.bucket = Bucket::named(&missed.key().bucket).unwrap_or(settings.bucket);
                jobs.push(Job { asked, settings, goes_on: self.race.again });
            }
        }
        jobs
    }

    /// The seconds that somebody has said a problem may take.
    fn budget_of(&self, job: &Job) -> Option<f64> {
        self.race.budget.or(job.asked.spec().map(|spec| spec.budget.unwrap_or(SPEC_SECONDS)))
    }

    /// A problem's part of the seconds there are for all.
    fn share_out(&self, settings: &mut Settings, spent: f64, left: usize) {
        let is_short = self.is_default() && !self.all && self.race.budget.is_none();
        let total = self.total.or(is_short.then_some(SUITE_SECONDS));
        if let Some(total) = total {
            let part = ((total - spent) / left.max(1) as f64).max(0.05);
            settings.budget.seconds = settings.budget.seconds.min(part);
        }
    }

    /// Says what would be done.
    fn dry_run(&self, jobs: &mut [Job], machine: &Machine, console: &Console) -> Result<Exit, Failure> {
        let mut table = Table::new(&["problem", "would", ">candidates", "~variants"]);
        let (count, mut racing, mut seconds) = (jobs.len(), 0, 0.0);
        for job in jobs {
            self.share_out(&mut job.settings, 0.0, count);
            let Plan { does, result } = job.plan(machine, self.until_clean)?;
            let tuner = job.tuner(machine)?;
            let standing = tuner.variants(Some(&job.asked.problem))?;
            let listed: Vec<_> = standing.iter().filter(|s| matches!(s.fit, Some(Fit::Fits(_)))).collect();
            let candidates: usize = listed.iter().map(|s| s.configs).sum();
            let grade = result.edition.as_ref().map(|e| e.verdict.grade);
            let own = match does {
                Does::GoesOn => until_clean::seconds_of_pass(self.budget_of(job), 0),
                _ => job.settings.budget.seconds,
            };
            if does != Does::Answers {
                (racing, seconds) = (racing + 1, seconds + own);
            }
            if console.json {
                let variants: Vec<_> = listed.iter().map(|s| json!({"variant": s.id, "configs": s.configs})).collect();
                let does = match does {
                    Does::Answers => "answer",
                    Does::Races => "race",
                    Does::GoesOn => "go on",
                };
                console.line(&json!({
                    "op": tuner.op(), "problem": job.asked.problem, "key": result.key.text, "would": does,
                    "known": does != "race", "grade": grade.map(|g| g.word()),
                    "newcomers": result.newcomers, "candidates": candidates, "variants": variants, "dry_run": true,
                }))?;
                continue;
            }
            let names: Vec<String> = listed.iter().map(|s| format!("{} ({})", s.id, s.configs)).collect();
            let grade = grade.map_or("not measured", |grade| grade.word());
            let would = match does {
                Does::Answers => Cell::styled(format!("answer from the store ({grade})"), GOOD),
                Does::Races => format!("race, {}", until_clean::about(own)).into(),
                Does::GoesOn => format!("go on ({grade}), {}", until_clean::about(own)).into(),
            };
            table.row([job.asked.problem.as_str().into(), would, candidates.into(), names.join(", ").into()]);
        }
        if !console.json && !table.is_empty() {
            console.say(table.render(console.width()))?;
            let takes = if racing == 0 { "at once".into() } else { until_clean::about(seconds) };
            console
                .say(paint(DIM, format!("{racing} would race, {} answer from the store: {takes}", count - racing)))?;
        }
        Ok(Exit::Ok)
    }

    fn footer(&self, answers: &[Answer], seconds: f64, machine: &Machine) -> String {
        let stored = answers.iter().filter(|a| a.is_stored()).count();
        let launches: u64 = answers.iter().map(Answer::launches).sum();
        let raced = answers.iter().filter(|a| a.how == How::Raced).count();
        let mut text = format!(
            "{} in {seconds:.1} s: {raced} raced with {} launches, {stored} from the store ({})",
            units::some(answers.len(), "problem", "problems"),
            units::count(launches),
            machine.store.place(),
        );
        for answer in answers {
            if let Some(raced_for) = answer.raced_for() {
                text.push_str(&format!("\nraced for the {raced_for}"));
            }
            match answer.joules {
                Some(Ok(joules)) => text.push_str(&format!("\na launch of the winner takes {:.3} mJ", joules * 1e3)),
                Some(Err(why)) => text.push_str(&format!("\nenergy: {why}")),
                None => {}
            }
            let Some((count, all, under_way)) = answer.builds.filter(|b| b.0 > 0) else { continue };
            let many = units::some(count, "library", "libraries");
            text.push_str(&format!(
                "\n{many} built in {all:.1} s, under way for {under_way:.1} s of {:.1} s",
                answer.seconds
            ));
            let flops = answer.edition.as_ref().map(|e| e.work.flops / e.verdict.median_us * 1e6);
            if let Some(flops) = flops.filter(|f| *f > 0.0) {
                text.push_str(&format!("; the winner reaches {}", units::rate(flops)));
            }
        }
        if answers.iter().any(Answer::is_tie) {
            text.push_str(&format!("\n≈ another candidate is as fast, within {:.0} %", 100.0 * self.race.eps));
        }
        for answer in answers {
            if let Some(note) = &answer.note {
                text.push_str(&format!("\n{}: {note}", answer.problem));
            }
        }
        let sentence = until_clean::sentence(answers, self.race.budget, self.is_first(), self.until_clean);
        text.extend(sentence.map(|said| format!("\n{said}")));
        if self.is_first() {
            let all = suite::default(None, machine.device.kind()).map_or(0, |all| all.len());
            text.push_str(&format!("\nthese are some of {all} problems: `warplap tune --all` takes every one"));
        }
        if let Some(legend) = Answer::legend(answers) {
            text.push_str(&format!("\n{legend}"));
        }
        paint(DIM, text)
    }
}

/// The place of a file in full, where it can be told.
fn shown_as(file: &Path) -> String {
    std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf()).display().to_string()
}

/// The policy a missed key was asked under.
fn missed_policy(key: &str, usual: Policy) -> Policy {
    let cache = if key.contains("cache=cold") { CacheState::Cold } else { CacheState::Hot };
    let queueing = match (key.contains("queue=graph"), key.contains("queue=stream")) {
        (true, _) => Queueing::Graph,
        (_, true) => Queueing::Stream,
        _ => usual.queueing,
    };
    let clock = match (key.contains("clock=back-to-back"), key.contains("clock=use")) {
        (true, _) => Clock::BackToBack,
        (_, true) => Clock::Use,
        _ => usual.clock,
    };
    Policy { cache, queueing, clock }
}

/// Answers one job.
fn answer(job: &Job, machine: &Machine, watch: &dyn Observer) -> Result<Answer, Failure> {
    let tuner = job.tuner(machine)?;
    let problem = &job.asked.problem;
    let started = Instant::now();
    let measured_at;
    let (key, winner, how, edition, stages, note) = match job.settings.mode {
        Mode::Tune => {
            let tuned = if job.goes_on { tuner.tune(problem, watch) } else { tuner.ensure(problem, watch) }?;
            let how = if tuned.from_store { How::Stored } else { How::Raced };
            measured_at = tuned.measured_at;
            (tuned.key, tuned.edition.verdict.winner.clone(), how, Some(tuned.edition), tuned.stages, tuned.note)
        }
        _ => {
            let result = tuner.find(problem)?;
            let (winner, how) = tuner.choose(problem)?;
            let edition = result.edition.filter(|_| !matches!(how, How::Default(_)));
            measured_at = result.measured_at.filter(|_| edition.is_some());
            (result.key, winner, how, edition, Vec::new(), None)
        }
    };
    let wants_energy = job.settings.mode == Mode::Tune && job.asked.spec().is_some_and(|s| s.energy);
    let joules = edition.as_ref().filter(|_| wants_energy).map(|e| energy(&*tuner, problem, e)).transpose()?;
    Ok(Answer {
        joules: joules.map(|j| j.ok_or("the device does not tell")),
        objective: job.asked.spec().map_or_else(Default::default, |s| s.objective.clone()),
        op: tuner.op(),
        problem: problem.clone(),
        key: key.text,
        device: tuner.device_slug(),
        mode: job.settings.mode.name(),
        how,
        winner,
        edition,
        measured_at,
        note,
        seconds: started.elapsed().as_secs_f64(),
        stages,
        builds: job.asked.spec().map(|s| s.build_seconds()),
        variants: tuner.variants(None)?,
    })
}

/// Joules of one launch of a winner: it is launched for a second, as an energy counter moves slowly.
fn energy(tuner: &dyn AnyTuner, problem: &str, edition: &TuningRun) -> Result<Option<f64>, Failure> {
    let winner = &edition.verdict.winner;
    let probe = |samples| tuner.bench(problem, &winner.variant, Some(&winner.config), samples);
    let Ok(first) = probe(3)? else { return Ok(None) };
    let sample = first.measurement.median_us * 1e-6 * f64::from(first.measurement.batch.max(1));
    let samples = (1.0 / sample.max(1e-6)).ceil().min(1e5) as u32;
    Ok(probe(samples)?.ok().and_then(|b| b.joules))
}

/// Builds what spec files that are not known need at least, before anything is raced: a kernel that never compiles and
/// a reference that gives no answer are bad input.
fn make_ready(jobs: &[Job], machine: &Machine, goes_on: bool) -> Result<(), Failure> {
    for job in jobs.iter().filter(|job| job.settings.mode == Mode::Tune) {
        let Some(spec) = job.asked.spec() else { continue };
        if job.plan(machine, goes_on)?.does == Does::Races {
            spec.ready_on(&machine.device).map_err(Failure::input)?;
        }
    }
    Ok(())
}
