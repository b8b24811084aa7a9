//! `warplap store import`: bundles come in. All are read and checked before the first record is taken over.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use warplap::any::Wanted;
use warplap::core::store::bundle::{Bundle, BundleError, Imported, MAX_BUNDLE};
use warplap::core::store::minisign::{MAX_SIGNATURES, MinisignSignature};
use warplap::core::store::trusted::{Take, Trusted};
use warplap::core::store::{Store, StoreError};
use warplap::core::user_files;

use super::sign::beside;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::machine::kept;
use crate::race_args;
use crate::units;

/// Arguments of `store import`.
#[derive(Args)]
pub(crate) struct Import {
    /// Bundles to read
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Signatures that stand elsewhere than in FILE.minisig
    #[arg(long, value_name = "FILE")]
    signature: Vec<PathBuf>,
    /// Take a bundle that is older than one that was taken before
    #[arg(long)]
    allow_older: bool,
    /// Look at no signature: it is taken as one that nobody signed
    #[arg(long, conflicts_with = "signature")]
    unsigned: bool,
    /// Prove nothing now: a winner from elsewhere is then proved at its first use, and in a replay not used
    #[arg(long)]
    no_prove: bool,
    /// Prove every winner from elsewhere here and now, which is what happens anyway
    #[arg(long, hide = true, conflicts_with = "no_prove")]
    prove: bool,
    /// Begin no proof after so many seconds
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = race_args::seconds)]
    seconds: f64,
    /// Where to prove: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto", conflicts_with = "no_prove")]
    device: Wanted,
}

impl Import {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        let store = kept(root, true)?;
        let trusted = store.trusted()?;
        let read = |file: &PathBuf| read(file, &self.signature, self.unsigned, &trusted);
        let bundles = self.files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        put(&bundles, &store, Take { older: self.allow_older }, console)?;
        take_artifacts(&bundles, root, console)?;
        if self.no_prove {
            return Ok(Exit::Ok);
        }
        super::proving::run(root, self.device, Some(Duration::from_secs_f64(self.seconds)), console)
    }
}

/// Keeps the compiled kernels of bundles that somebody who is trusted signed; those of others are left where they are.
fn take_artifacts(bundles: &[Bundle], root: Option<&Path>, console: &Console) -> Result<(), Failure> {
    let (mut taken, mut left) = (0, 0);
    for bundle in bundles.iter().filter(|bundle| bundle.carried() > 0) {
        let (Some(carried), Some(kept)) = (bundle.artifacts(), super::export::artifacts(root)?) else {
            left += bundle.carried();
            continue;
        };
        for (digest, bytes) in carried {
            kept.put_bytes(digest, bytes).map_err(|e| Failure::NoAnswer(e.to_string()))?;
            taken += 1;
        }
    }
    if left > 0 {
        console.warn(format_args!("{left} compiled kernels were left out: nobody whom this store trusts signed them"));
    }
    if taken > 0 {
        console.log(format_args!("{} kept", units::some(taken, "compiled kernel", "compiled kernels")));
    }
    Ok(())
}

/// Reads a bundle and the signatures beside it; the sentence names the file.
pub(super) fn read(file: &Path, more: &[PathBuf], unsigned: bool, trusted: &Trusted) -> Result<Bundle, Failure> {
    let bad = |e: BundleError| {
        Failure::input(format!("FILE is '{}': {e}: expected a bundle of warplap store export", file.display()))
    };
    let read = || read_once(file, more, unsigned, trusted, bad);
    match read()? {
        // Somebody may have put another bundle there between the two looks.
        Err(BundleError::Forged { .. }) if file.is_file() => read()?.map_err(bad),
        bundle => bundle.map_err(bad),
    }
}

fn read_once(
    file: &Path,
    more: &[PathBuf],
    unsigned: bool,
    trusted: &Trusted,
    bad: impl Fn(BundleError) -> Failure,
) -> Result<Result<Bundle, BundleError>, Failure> {
    let bytes = user_files::bytes(file, MAX_BUNDLE).map_err(|e| bad(e.into()))?;
    let mut signatures = Vec::new();
    let beside = beside(file);
    let there = beside.symlink_metadata().is_ok() && more.is_empty();
    for path in more.iter().chain(there.then_some(&beside)).filter(|_| !unsigned) {
        let unread = |e: &dyn std::fmt::Display| Failure::input(format!("--signature {}: {e}", path.display()));
        let text = user_files::bytes(path, MAX_SIGNATURES).map_err(|e| unread(&e))?;
        signatures.extend(MinisignSignature::parse_all(&text).map_err(|e| unread(&e))?);
    }
    Ok(Bundle::signed(&bytes, &signatures, trusted))
}

/// Puts bundles into a store and says what that did.
pub(super) fn put(bundles: &[Bundle], store: &Store, take: Take, console: &Console) -> Result<Exit, Failure> {
    let stopped = |e: StoreError| match e {
        StoreError::Unsigned { .. } | StoreError::Untrusted { .. } | StoreError::OutOfDate { .. } => Failure::input(e),
        e => {
            Failure::NoAnswer(format!("{e}; what was taken over by then stays, and importing again goes on from there"))
        }
    };
    let mut all = Imported::default();
    for bundle in bundles {
        let Imported { added, joined, unchanged, refused } = bundle.put_into_as(store, take).map_err(stopped)?;
        all.added += added;
        all.joined += joined;
        all.unchanged += unchanged;
        all.refused.extend(refused);
    }
    let Imported { added, joined, unchanged, refused } = all;
    console.warn_of(&refused);
    if console.json {
        let refused = refused.len();
        console.line(&json!({"added": added, "joined": joined, "unchanged": unchanged, "refused": refused}))?;
    } else {
        let records = units::some(bundles.iter().map(Bundle::len).sum(), "record", "records");
        console
            .say(format!("{records}: {added} added, {joined} joined, {unchanged} known already → {}", store.place()))?;
    }
    Ok(Exit::Ok)
}
