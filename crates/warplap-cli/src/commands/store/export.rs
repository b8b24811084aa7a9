//! `warplap store export`: records into one bundle file, to be imported elsewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use warplap::core::store::bundle::{Bundle, Claims};
use warplap::core::store::minisign::{MAX_SIGNATURES, MinisignSignature};
use warplap::core::store::{self, Address, Entry, SecretKey, Store};
use warplap::core::user_files;
use warplap::cuda::Artifacts;

use super::sign::beside;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::kept;
use crate::suite;
use crate::units;

/// Arguments of `store export`.
#[derive(Args)]
pub(crate) struct StoreExport {
    /// The bundle to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Of this operation alone
    #[arg(long, value_name = "OP")]
    op: Option<String>,
    /// Of devices whose folder name contains this
    #[arg(long, value_name = "TEXT")]
    device: Option<String>,
    /// Sign it with the key of `store keygen`
    #[arg(long, value_name = "KEYFILE")]
    sign: Option<PathBuf>,
    /// Its number in the row of bundles of its name; a store takes no lower one (default with --sign: the time)
    #[arg(long, value_name = "N")]
    serial: Option<u64>,
    /// What it is a bundle of (default with --sign: the operation, or all)
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Nobody takes it after this time: 12h, 30d
    #[arg(long, value_name = "TIME", value_parser = period)]
    expires: Option<u64>,
    /// Put the compiled kernels of winners and ties in; others take them with a trusted signature alone
    #[arg(long, requires = "sign")]
    artifacts: bool,
}

impl StoreExport {
    pub(crate) fn run(&self, store: &Store, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let op = suite::operation(self.op.as_deref())?;
        let wanted = |e: &Entry| {
            op.is_none_or(|op| e.op == op.name) && self.device.as_ref().is_none_or(|d| e.device_slug.contains(d))
        };
        let refused = |e| Failure::input(format!("--sign: {e}"));
        let key = self.sign.as_deref().map(SecretKey::read).transpose().map_err(refused)?;
        let mut bundle = Bundle::of(store, wanted);
        let usual = || key.as_ref().map(|_| op.map_or("all", |op| op.name).to_string());
        bundle.claims = Claims {
            name: self.name.clone().or_else(usual).unwrap_or_default(),
            serial: self.serial.or_else(|| key.as_ref().map(|_| now())),
            expires: self.expires.map(|seconds| now().saturating_add(seconds)),
        };
        if self.artifacts {
            carry(&mut bundle, root)?;
        }
        let bytes = bundle.to_bytes();
        let signature = key.as_ref().map(|key| Bundle::sign(&bytes, key)).transpose()?;
        self.put(&bytes, signature.map(|signature| signature.to_string()))?;
        if bundle.left_out > 0 {
            console.warn(format_args!("{} damaged or newer records were left out", bundle.left_out));
        }
        let (file, signer) = (self.file.display().to_string(), key.map(|key| key.public().to_string()));
        if console.json {
            let (records, left_out) = (bundle.len(), bundle.left_out);
            let Claims { name, serial, expires } = &bundle.claims;
            console.line(&json!({"file": file, "records": records, "left_out": left_out, "signed_by": signer,
                "artifacts": bundle.carried(),
                "name": name, "serial": serial, "expires": expires}))?;
        } else {
            let signed = signer.map(|key| format!(", signed by {key}")).unwrap_or_default();
            console.say(format!("{} written to {file}{signed}", units::some(bundle.len(), "record", "records")))?;
        }
        Ok(Exit::Ok)
    }

    /// Puts a bundle in its place, and its signature beside it. Whoever reads meanwhile finds one that fits: that of
    /// what stands here now and the new one stand side by side until the bundle has changed, by one rename.
    fn put(&self, bytes: &[u8], signature: Option<String>) -> Result<(), Failure> {
        let beside = beside(&self.file);
        let Some(signature) = signature else {
            kept::write(&self.file, bytes, "FILE")?;
            // That of what stood here before is none of this bundle.
            let _ = std::fs::remove_file(&beside);
            return Ok(());
        };
        let sign = |text: &str| kept::write(&beside, text.as_bytes(), "FILE.minisig");
        let old = if self.file.is_file() { user_files::text(&beside, MAX_SIGNATURES).ok() } else { None };
        let both = old.map(|old| format!("{}\n{signature}", old.trim_end()));
        // One more may be more than anybody reads: then the old one goes first.
        let both = both.filter(|both| MinisignSignature::parse_all(both.as_bytes()).is_ok());
        sign(both.as_ref().unwrap_or(&signature))?;
        kept::write(&self.file, bytes, "FILE")?;
        if both.is_some() { sign(&signature) } else { Ok(()) }
    }
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

fn name(text: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    let good = (1..=64).contains(&text.len()) && text.bytes().all(plain);
    good.then(|| text.to_string()).ok_or_else(|| "expected lower case letters, digits, _ and -".into())
}

/// Seconds of a text such as `12h` or `30d`.
fn period(text: &str) -> Result<u64, String> {
    let unit = |letter| match letter {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3_600),
        'd' => Some(86_400),
        _ => None,
    };
    let seconds = text.chars().last().and_then(unit).and_then(|unit: u64| {
        let number: u64 = text[..text.len() - 1].parse().ok()?;
        number.checked_mul(unit).filter(|seconds| *seconds > 0 && *seconds <= 36_500 * 86_400)
    });
    seconds.ok_or_else(|| "expected a number and s, m, h or d, such as 30d".into())
}

/// Puts the compiled kernels of a bundle's winners and ties into it, as far as the store keeps them.
fn carry(bundle: &mut Bundle, root: Option<&Path>) -> Result<(), Failure> {
    let Some(kept) = artifacts(root)? else { return Ok(()) };
    let digests: BTreeSet<String> = bundle.records().flat_map(|r| r.editions).flat_map(|e| e.artifacts).collect();
    for digest in digests {
        if let Some(bytes) = kept.bytes(&digest) {
            bundle.carry(&digest, bytes)?;
        }
    }
    Ok(())
}

/// The compiled kernels of a store in a directory.
pub(super) fn artifacts(root: Option<&Path>) -> Result<Option<Artifacts>, Failure> {
    let address = root.map_or_else(store::default_address, Address::of)?;
    let opened = address.directory().map(Artifacts::open).transpose();
    opened.map_err(|e| Failure::NoAnswer(e.to_string()))
}
