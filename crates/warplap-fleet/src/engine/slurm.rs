//! The engine of a Slurm cluster: jobs become arrays of batches, whose workers write their events into files of a folder
//! that all nodes see. What is not done when a batch is gone, or has fallen silent, is submitted again.
//!
//! Slurm's own requeueing is not used: a node that died hard is given up by its controller after minutes, and a requeued
//! batch waits longer still. A worker says every few seconds that it is there; one that does not is taken for dead.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::tries::Tries;
use super::{Engine, EngineError, Program, batches, classes_in, said};
use crate::jobs::{Class, Event, Job, State};

const REMEDY: &str = "expected Slurm's own programs (sbatch, squeue, srun, scancel, sinfo) in PATH";
/// Seconds between two words of a worker.
const BEAT: u64 = 3;
/// How often files and queue are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A Slurm cluster.
pub struct Slurm {
    program: Program,
    folder: PathBuf,
    more: Vec<String>,
    silence: Duration,
    classes: Vec<Class>,
}

/// A batch that was submitted.
struct Batch {
    /// `<array>_<index>`, as `squeue` says it.
    task: String,
    jobs: Vec<Job>,
    events: PathBuf,
    read: usize,
    node: String,
    heard: Option<Instant>,
}

impl Slurm {
    /// Batches and their events go through `folder`, which every node sees under this name; `more` goes to `sbatch`
    /// (a partition, an account).
    pub fn new(program: Program, folder: PathBuf, more: Vec<String>) -> Slurm {
        Slurm { program, folder, more, silence: Duration::from_secs(30), classes: Vec::new() }
    }

    /// The same where a worker counts as dead after another silence.
    pub fn with_silence(mut self, silence: Duration) -> Slurm {
        self.silence = silence.max(Duration::from_secs(2 * BEAT));
        self
    }

    /// The nodes that answer, by name.
    fn nodes(&self) -> Result<BTreeSet<String>, EngineError> {
        let up = ["-h", "-N", "-o", "%N", "-t", "idle,mixed,allocated,completing"];
        Ok(said(Command::new("sinfo").args(up), REMEDY)?.lines().map(|l| l.trim().to_string()).collect())
    }

    /// One array of batches for one class of devices.
    fn submit(&self, class: &Class, jobs: Vec<Job>, shunned: &BTreeSet<String>) -> Result<Vec<Batch>, EngineError> {
        let of_class = |node: &str| self.classes.iter().any(|c| same(c, class) && c.node == node);
        let all = self.nodes()?;
        let good: Vec<&String> = all.iter().filter(|n| of_class(n) && !shunned.contains(*n)).collect();
        if good.is_empty() {
            return Ok(Vec::new());
        }
        let not: Vec<&str> = all.iter().filter(|n| !good.contains(n)).map(String::as_str).collect();
        let parts = batches(jobs, good.len());
        let dir = fresh(&self.folder)?;
        for (n, part) in parts.iter().enumerate() {
            let text: String = part.iter().map(|job| job.line() + "\n").collect();
            fs::write(dir.join(format!("{n}.jobs")), text)?;
        }
        let script = dir.join("batch.sh");
        fs::write(&script, self.script(class, &dir))?;
        let mut sbatch = Command::new("sbatch");
        sbatch.args(["--parsable", "--no-requeue", "--job-name=warplap", "--ntasks=1"]);
        sbatch.arg(format!("--array=0-{}", parts.len() - 1)).args(["--output=/dev/null", "--error=/dev/null"]);
        match class.kind.as_str() {
            "cpu" => sbatch.arg("--exclusive"),
            _ => sbatch.arg("--gres=gpu:1"),
        };
        if !not.is_empty() {
            sbatch.arg(format!("--exclude={}", not.join(",")));
        }
        let id = said(sbatch.args(&self.more).arg(&script), REMEDY)?;
        let id = id.trim().split(';').next().unwrap_or_default().to_string();
        let batch = |(n, jobs): (usize, Vec<Job>)| {
            let (task, events) = (format!("{id}_{n}"), dir.join(format!("{n}.events")));
            Batch { task, jobs, events, read: 0, node: String::new(), heard: None }
        };
        Ok(parts.into_iter().enumerate().map(batch).collect())
    }

    /// What a node runs for one batch.
    fn script(&self, class: &Class, dir: &Path) -> String {
        let device = if class.kind == "cpu" { "cpu" } else { "cuda:0" };
        let program: Vec<String> = self.program.words.iter().map(|w| quoted(&w.to_string_lossy())).collect();
        let at = quoted(&dir.to_string_lossy());
        format!(
            "#!/bin/sh\nexec {} fleet work --device {device} --beat {BEAT} <{at}/$SLURM_ARRAY_TASK_ID.jobs \
             >{at}/$SLURM_ARRAY_TASK_ID.events 2>{at}/$SLURM_ARRAY_TASK_ID.errors\n",
            program.join(" ")
        )
    }

    /// The tasks that Slurm still has.
    fn queued(&self) -> Result<BTreeSet<String>, EngineError> {
        let text = said(Command::new("squeue").args(["-h", "-r", "--name=warplap", "-o", "%i"]), REMEDY)?;
        Ok(text.lines().map(|l| l.trim().to_string()).collect())
    }
}

impl Engine for Slurm {
    /// One node of each kind that `sinfo` tells apart is asked, and its answer counts for all nodes of that kind; a
    /// worker that finds itself on another class refuses.
    fn classes(&mut self) -> Result<Vec<Class>, EngineError> {
        let kinds = ["-h", "-N", "-t", "idle,mixed,allocated,completing", "-o", "%N|%f|%G|%c|%m"];
        let text = said(Command::new("sinfo").args(kinds), REMEDY)?;
        let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (node, kind) in text.lines().filter_map(|l| l.trim().split_once('|')) {
            groups.entry(kind.to_string()).or_default().insert(node.to_string());
        }
        let mut result = Vec::new();
        for nodes in groups.values() {
            let Some(one) = nodes.first() else { continue };
            let mut srun = Command::new("srun");
            srun.args(["-Q", "-N1", "-n1", "--overcommit", "--immediate=60", "--exclusive", "-w", one]);
            srun.args(&self.more).args(&self.program.words).args(["fleet", "work", "--probe"]);
            for class in classes_in("srun", &said(&mut srun, REMEDY)?)? {
                result.extend(nodes.iter().map(|node| Class { node: node.clone(), ..class.clone() }));
            }
        }
        self.classes = result.clone();
        Ok(result)
    }

    fn run(
        &mut self,
        jobs: Vec<Job>,
        stop: &(dyn Fn() -> bool + Sync),
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), EngineError> {
        if self.classes.is_empty() {
            self.classes()?;
        }
        let mut tries = Tries::of(jobs, &self.classes, "no node has a device of that class", tell);
        let (mut out, mut shunned): (Vec<Batch>, BTreeSet<String>) = (Vec::new(), BTreeSet::new());
        while !tries.is_empty() && !stop() {
            for class in distinct(&self.classes) {
                let ready: Vec<Job> = std::iter::from_fn(|| tries.next(|job| class.suits(job))).collect();
                if ready.is_empty() {
                    continue;
                }
                let ids: Vec<String> = ready.iter().map(|job| job.id.clone()).collect();
                let submitted = self.submit(&class, ready, &shunned)?;
                if submitted.is_empty() {
                    // Nobody is there now: those that fell silent may be back.
                    shunned.clear();
                    ids.iter().for_each(|id| tries.put_back(id));
                }
                out.extend(submitted);
            }
            std::thread::sleep(LOOK);
            let queued = self.queued()?;
            let mut kept = Vec::new();
            for mut batch in out {
                let here = queued.contains(&batch.task);
                for event in batch.news() {
                    if event.state != State::Alive && tries.hear(&event) {
                        tell(event);
                    }
                }
                let silent = batch.heard.is_some_and(|at| at.elapsed() > self.silence);
                if here && !silent {
                    kept.push(batch);
                    continue;
                }
                if here {
                    let _ = Command::new("scancel").arg(&batch.task).output();
                    shunned.insert(batch.node.clone());
                }
                let why = if here { "its node fell silent" } else { "its batch is gone" };
                batch.settle(&mut tries, why, tell);
            }
            out = kept;
        }
        for batch in &out {
            let _ = Command::new("scancel").arg(&batch.task).output();
        }
        Ok(())
    }
}

impl Batch {
    /// The events written since the last look; whole lines only.
    fn news(&mut self) -> Vec<Event> {
        let Ok(text) = fs::read(&self.events) else { return Vec::new() };
        let fresh = text.get(self.read..).unwrap_or_default();
        let whole = fresh.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        if whole == 0 {
            return Vec::new();
        }
        self.read += whole;
        self.heard = Some(Instant::now());
        let lines = String::from_utf8_lossy(&fresh[..whole]).into_owned();
        let events: Vec<Event> = lines.lines().filter_map(|l| Event::read(l).ok()).collect();
        if let Some(event) = events.last() {
            self.node = event.node.clone();
        }
        events
    }

    /// What becomes of the jobs of a batch that is gone: the one it was at has lost a try, those behind it none.
    fn settle(&mut self, tries: &mut Tries, why: &str, tell: &mut dyn FnMut(Event)) {
        let begun = fs::read_to_string(&self.events).unwrap_or_default();
        let begun: BTreeSet<String> = begun
            .lines()
            .filter_map(|l| Event::read(l).ok())
            .filter(|event| event.state == State::Begun)
            .map(|event| event.id)
            .collect();
        for job in &self.jobs {
            // A batch that never began cannot be told from one that dies at once: a try is counted.
            if begun.contains(&job.id) || begun.is_empty() {
                if let Some(event) = tries.lose(&job.id, &self.node, why) {
                    tell(event);
                }
            } else {
                tries.put_back(&job.id);
            }
        }
    }
}

fn same(a: &Class, b: &Class) -> bool {
    (&a.device, &a.soft) == (&b.device, &b.soft)
}

fn distinct(classes: &[Class]) -> Vec<Class> {
    let mut kept: Vec<Class> = Vec::new();
    for class in classes {
        if !kept.iter().any(|k| same(k, class)) {
            kept.push(class.clone());
        }
    }
    kept
}

/// A folder that nobody has used.
fn fresh(folder: &Path) -> Result<PathBuf, EngineError> {
    fs::create_dir_all(folder)?;
    loop {
        let dir = folder.join(format!("array-{:016x}", fastrand::u64(..)));
        match fs::create_dir(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return Ok(made.map(|()| dir)?),
        }
    }
}

/// A word that the shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_reaches_the_program_as_it_is() {
        let word = "a 'b' $c `d`";
        let said = Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), word);
    }
}
