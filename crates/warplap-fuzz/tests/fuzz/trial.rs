//! One target in a process of its own: a corpus and seconds come in; either nothing was wrong, or this process ends and
//! the last input stands in a file.
//!
//! A panic, a failed assertion, a second of computing on one input, or more memory than [`MEMORY`] is a finding.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::mutate::Mutator;
use crate::targets::Target;

/// Bytes of memory that this process may take.
const MEMORY: u64 = 256 << 20;
/// Computing on one input, and waiting for one.
const COMPUTES: Duration = Duration::from_secs(1);
const WAITS: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(50);

/// The exit code of a process that ended itself because of a finding.
pub(crate) const FOUND: i32 = 3;

/// How many inputs were begun: whoever watches sees by it that one ended.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static RUNNING: AtomicBool = AtomicBool::new(false);

/// Tries a target for some seconds; the number of inputs and of answers that differ.
pub(crate) fn run(target: &Target, corpus: &[Vec<u8>], seed: u64, seconds: f64, last: &Path) -> (u64, usize) {
    limit();
    let file = File::create(last).unwrap_or_else(|e| end(&format!("{}: {e}", last.display())));
    let (mut mutator, mut heard) = (Mutator::new(corpus, seed), HashSet::new());
    let begun = Instant::now();
    let mut count = 0;
    let mut try_one = |input: &[u8]| {
        let length = (input.len() as u64).to_le_bytes();
        if file.write_all_at(&length, 0).and_then(|()| file.write_all_at(input, 8)).is_err() {
            end("the last input cannot be written");
        }
        BEGUN.fetch_add(1, Ordering::SeqCst);
        RUNNING.store(true, Ordering::SeqCst);
        let answer = (target.run)(input);
        RUNNING.store(false, Ordering::SeqCst);
        count += 1;
        heard.len() < 100_000 && heard.insert(gist(&answer))
    };
    for input in corpus {
        try_one(input);
    }
    while begun.elapsed().as_secs_f64() < seconds {
        let input = mutator.next();
        if try_one(&input) {
            mutator.keep(&input);
        }
    }
    (count, heard.len())
}

/// The last input of a process that is gone.
pub(crate) fn last_input(file: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.get(..u64::from_le_bytes(*length) as usize).map(<[u8]>::to_vec)
}

/// What an answer says, without what it says it of: its first line without quotations and numbers.
fn gist(answer: &str) -> String {
    let line = answer.lines().next().unwrap_or_default();
    let quotes = ['\'', '"', '`'];
    let (before, after) = match (line.find(quotes), line.rfind(quotes)) {
        (Some(from), Some(to)) => (&line[..from], &line[to..]),
        _ => (line, ""),
    };
    before.chars().chain(after.chars()).filter(|c| c.is_alphabetic() || *c == ' ').take(200).collect()
}

/// Ends this process with what was wrong.
pub(crate) fn end(why: &str) -> ! {
    let _ = writeln!(std::io::stderr(), "{why}");
    std::process::exit(FOUND)
}

fn limit() {
    std::panic::set_hook(Box::new(|panic| end(&panic.to_string())));
    let to = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    // Without either limit there is less that can be found, and nothing else changes.
    let _ = setrlimit(Resource::Core, to(0));
    let _ = setrlimit(Resource::Data, to(MEMORY));
    std::thread::spawn(watch);
}

/// Ends this process when one input takes too long: by its own clock, which a busy machine does not turn.
fn watch() {
    let computed = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    let (mut input, mut since, mut ticks) = (0, computed(), 0);
    loop {
        std::thread::sleep(TICK);
        let (now, at) = (BEGUN.load(Ordering::SeqCst), computed());
        if now != input || !RUNNING.load(Ordering::SeqCst) {
            (input, since, ticks) = (now, at, 0);
            continue;
        }
        ticks += 1;
        let waited = TICK * ticks;
        if at.saturating_sub(since) > COMPUTES || waited > WAITS {
            end(&format!("it takes too long: {:?} computed, {waited:?} waited", at.saturating_sub(since)));
        }
    }
}
