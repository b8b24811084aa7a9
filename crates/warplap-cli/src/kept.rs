//! What the store has kept of a problem: for commands that only show or write it down. Nothing is measured.

use std::path::Path;

use warplap::any::VariantStatus;
use warplap::core::objective::Objective;
use warplap::core::record::{Record, TuningRun};
use warplap::core::store::{Checked, Store};
use warplap::core::user_files;
use warplap::{Bucket, DType, Mode, Settings};

use crate::facts::Subject;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::race_args::Where;
use crate::suite;

/// The edition that answers for a problem, and what stands around it.
pub(crate) struct Kept {
    /// As the user asked for it.
    pub(crate) asked: String,
    /// What it is called on a page.
    pub(crate) title: String,
    pub(crate) op: &'static str,
    pub(crate) problem: String,
    pub(crate) key: String,
    pub(crate) device: String,
    pub(crate) edition: TuningRun,
    /// What is to be said first where it was measured at another size: which one, and what that means for this one.
    pub(crate) other_size: Option<String>,
    /// What was raced for.
    pub(crate) objective: Objective,
    pub(crate) variants: Vec<VariantStatus>,
    /// FLOP/s and bytes a second at best, where they were measured.
    pub(crate) ceilings: Option<(f64, f64)>,
    /// The records of the same key on every device.
    pub(crate) everywhere: Vec<(String, Record)>,
}

impl Kept {
    /// Finds it; a problem that was never tuned is bad input.
    pub(crate) fn find(what: &str, place: &Where, root: Option<&Path>) -> Result<Kept, Failure> {
        let asked = suite::asked(what, None)?;
        let machine = Machine::open_to_read(root, asked.wanted(place.device)?)?;
        let policy = place.policy(&machine.device);
        let by = |bucket: Bucket| {
            let settings = Settings { mode: Mode::Replay, bucket, policy, ..Settings::default() };
            let tuner = asked.open(&machine.device, machine.store.clone(), settings)?;
            let result = tuner.find(&asked.problem)?;
            Ok::<_, Failure>((tuner, result))
        };
        let (mut tuner, mut result) = by(Bucket::default())?;
        if result.edition.is_none() {
            (tuner, result) = by(Bucket::Exact)?;
        }
        let unknown =
            || Failure::input(format!("{what}: {}: expected a tuned problem (warplap tune {what})", result.matched));
        let edition = result.edition.clone().ok_or_else(unknown)?;
        let slug = tuner.device_slug();
        let ceilings = ceilings(&machine.store, &slug, &asked.problem, edition.work.bytes);
        let same = |entry: &warplap::core::store::Entry| entry.op == result.key.op && entry.hash == result.key.hash();
        let everywhere =
            machine.store.entries().into_iter().filter(same).filter_map(|entry| match machine.store.check(&entry) {
                Checked::Whole(record) => Some((entry.device_slug, *record)),
                _ => None,
            });
        let other_size = result.measured_at.as_ref().map(|at| {
            format!("Measured at {at}: no time here is one of {}. In the store: {}.", asked.problem, result.matched)
        });
        Ok(Kept {
            asked: what.to_string(),
            other_size,
            title: asked.title(),
            objective: asked.spec().map_or_else(Default::default, |s| s.objective.clone()),
            op: tuner.op(),
            key: result.key.text.clone(),
            device: slug,
            variants: tuner.variants(Some(&asked.problem))?,
            everywhere: everywhere.collect(),
            problem: asked.problem,
            edition,
            ceilings,
        })
    }
}

impl Kept {
    /// What a report of it is about.
    pub(crate) fn subject(&self) -> Subject<'_> {
        let Kept { asked, title, problem, key, device, variants, ceilings, other_size, .. } = self;
        let other_size = other_size.as_deref();
        Subject { asked, title: title.clone(), problem, key, device, variants, ceilings: *ceilings, other_size }
    }
}

/// The best a device was seen to do: FLOP/s of the problem's type, and bytes a second of the level its bytes fit into.
pub(crate) fn ceilings(store: &Store, slug: &str, problem: &str, bytes: f64) -> Option<(f64, f64)> {
    let note = store.note(slug, "ceilings")?;
    let dtype = DType::ALL.iter().map(|d| d.name()).find(|d| problem.contains(&format!("dtype={d}")));
    let flops = note["flops"][dtype.unwrap_or("f32")].as_f64()?;
    let levels = note["bandwidth"].as_array()?;
    let fits = |l: &&serde_json::Value| l["capacity"].as_f64().is_some_and(|c| bytes <= c);
    let rate = levels.iter().find(fits).or(levels.last())?["rate"].as_f64()?;
    Some((flops, rate))
}

/// Writes a file that a user names, `what` says by which argument: who reads it meanwhile sees the old one, and what is
/// no regular file is written through. That there is no room for it is not the user's mistake.
pub(crate) fn write(path: &Path, content: &[u8], what: &str) -> Result<(), Failure> {
    user_files::write(path, content).map_err(|e| match () {
        () if e.kind() == std::io::ErrorKind::BrokenPipe => Failure::Pipe,
        () if is_full(&e) => Failure::NoAnswer(format!("{what} {}: {e}: nothing was written there", path.display())),
        () => Failure::input(format!("{what} {}: {e}: expected a file that can be written", path.display())),
    })
}

/// Whether an error says that there is no room, or no more is allowed.
pub(crate) fn is_full(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(e.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
