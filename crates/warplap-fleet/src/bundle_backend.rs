//! A store straight from a bundle: `bundle:/path/FILE` comes in, a backend goes out that is read record by record and
//! asks nobody. What is written goes into memory and ends with the process.
//!
//! `bundle:/path/FILE?key=KEY` opens it where KEY has signed it (`FILE.minisig` beside it), and `&trust=signed` lets its
//! winners run without a proof; without that they are proved before their first use, like any other. Without a key the
//! file, like a store's directory, must be one that nobody else can write to.
//!
//! `bundle:s3://bucket/NAME?key=KEY` (also `gs:`, `az:`, `https:`; feature `objects`) opens the copy near by of an
//! object, which is asked for anew when the copy is older than a minute (`&refresh=SECONDS`, `&refresh=never`).

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(feature = "objects")]
use warplap_core::store;
#[cfg(feature = "objects")]
use warplap_core::store::bundle::Claims;
use warplap_core::store::bundle::{Bundle, MAX_BUNDLE, Reader};
use warplap_core::store::minisign::{MAX_SIGNATURES, MinisignSignature};
use warplap_core::store::trusted::{TrustPolicy, Trusted};
use warplap_core::store::{
    Flight, Kind, Listed, Mark, MemoryBackend, Next, Place, PublicKey, ReadResult, Store, StoreBackend, StoreError,
    distrust,
};
use warplap_core::user_files;

/// The scheme of bundles.
pub const SCHEME: &str = "bundle";

/// How long the copy of an object is taken as it is.
const REFRESH: Duration = Duration::from_secs(60);

/// A bundle under a backend in memory.
pub struct BundleBackend {
    /// As the URL has it.
    at: String,
    reader: Reader,
    signers: Vec<PublicKey>,
    written: Arc<MemoryBackend>,
    modified: SystemTime,
    listed: OnceLock<Vec<Listed>>,
}

/// What a URL asks for.
#[derive(Debug, PartialEq)]
struct Asked {
    at: String,
    keys: Vec<PublicKey>,
    policy: TrustPolicy,
    refresh: Option<Duration>,
}

impl Asked {
    fn of(url: &str) -> Result<Asked, StoreError> {
        let bad = |why: String| StoreError::Invalid(format!("{why}: expected bundle:/path/FILE?key=KEY&trust=signed"));
        let rest = url.strip_prefix("bundle:").unwrap_or(url);
        let (at, query) = rest.split_once('?').unwrap_or((rest, ""));
        let at = at.strip_prefix("//").unwrap_or(at).to_string();
        let mut asked = Asked { at, keys: Vec::new(), policy: TrustPolicy::default(), refresh: Some(REFRESH) };
        for (name, value) in
            query.split('&').filter(|part| !part.is_empty()).map(|p| p.split_once('=').unwrap_or((p, "")))
        {
            match (name, value) {
                ("key", key) => asked.keys.push(key.parse().map_err(|e| bad(format!("key: {e}")))?),
                ("trust", "proved") => asked.policy = TrustPolicy::Proved,
                ("trust", "signed") => asked.policy = TrustPolicy::Signed,
                ("refresh", "never") if asked.is_object() => asked.refresh = None,
                ("refresh", seconds) if asked.is_object() => {
                    let seconds = seconds.parse().map_err(|_| bad("refresh: expected seconds, or never".into()))?;
                    asked.refresh = Some(Duration::from_secs(seconds));
                }
                _ => return Err(bad("the bundle's URL asks for something unknown".into())),
            }
        }
        match (asked.at.is_empty(), asked.keys.is_empty()) {
            (true, _) => Err(bad("the bundle's URL has no file".into())),
            (_, true) if asked.policy == TrustPolicy::Signed => {
                Err(bad("the bundle's URL asks for signatures without a key".into()))
            }
            (_, true) if asked.is_object() => {
                Err(bad("an object is taken where its signer is named (?key=KEY) alone".into()))
            }
            _ => Ok(asked),
        }
    }

    /// Whether it is an object somewhere else: `s3://bucket/name`.
    fn is_object(&self) -> bool {
        self.at.split_once("://").is_some_and(|(scheme, _)| scheme != "file")
    }

    /// The file, near by.
    fn file(&self) -> Result<PathBuf, String> {
        if !self.is_object() {
            return Ok(self.at.strip_prefix("file://").unwrap_or(&self.at).into());
        }
        #[cfg(feature = "objects")]
        {
            let near = store::near_root().ok_or("no folder near by is known for its copy (HOME is not set)")?;
            let (url, folder) = (self.at.as_str(), near.join("bundles"));
            crate::objects::Object { url, refresh: self.refresh, folder: &folder }.near(&|new, old| {
                let new = checked(new, &self.keys)?;
                // The one before may be damaged; then there is none.
                match old.and_then(|old| Reader::open(old).ok()) {
                    Some(old) => newer(new.claims(), old.claims()),
                    None => Ok(()),
                }
            })
        }
        #[cfg(not(feature = "objects"))]
        Err("this program was built without objects: build it with the feature objects, or fetch the file".into())
    }
}

/// Whether a bundle may follow another of its name.
#[cfg(feature = "objects")]
fn newer(new: &Claims, old: &Claims) -> Result<(), String> {
    match new.name == old.name && new.serial < old.serial {
        true => {
            let number = |claims: &Claims| claims.serial.map_or("none".into(), |n| n.to_string());
            let (new, old) = (number(new), number(old));
            Err(format!(
                "its serial ({new}) is lower than that of the one before ({old}): somebody put an older one there"
            ))
        }
        false => Ok(()),
    }
}

/// Opens the store of a URL.
pub fn open(url: &str) -> Result<Store, StoreError> {
    let asked = Asked::of(url)?;
    let title = format!("bundle {}", asked.at);
    let failed = |why: &dyn std::fmt::Display| StoreError::Backend { title: title.clone(), why: why.to_string() };
    let path = asked.file().map_err(|why| failed(&why))?;
    let Asked { at, keys, policy, .. } = asked;
    let meta = std::fs::metadata(&path).map_err(|e| failed(&e))?;
    if let Some(why) = distrust(&meta).filter(|_| keys.is_empty()) {
        return Err(failed(&format!("{why}: name the key that signed it (?key=…), or chmod go-w it")));
    }
    let reader = checked(&path, &keys).map_err(|why| failed(&why))?;
    let written = Arc::new(MemoryBackend::new());
    if !keys.is_empty() {
        let noted = Store::new(written.clone());
        noted.trust(|t: &mut Trusted| {
            keys.iter().for_each(|key| t.add(key, ""));
            t.policy = policy;
        })?;
    }
    let modified = meta.modified().unwrap_or(UNIX_EPOCH);
    let backend = BundleBackend { at, reader, signers: keys, written, modified, listed: OnceLock::new() };
    Ok(Store::new(Arc::new(backend)))
}

/// A bundle that is whole, has not expired and is signed by every key.
fn checked(path: &Path, keys: &[PublicKey]) -> Result<Reader, String> {
    let reader = Reader::open(path).map_err(|e| e.to_string())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    if reader.claims().expires.is_some_and(|at| at <= now) {
        return Err("it has expired: ask its maker for a newer one".into());
    }
    if !keys.is_empty() {
        signed(path, &reader, keys)?;
    }
    Ok(reader)
}

/// Whether every key has signed a bundle. Our own signatures are checked without reading the records; others cover the
/// whole file, which is read for them.
fn signed(path: &Path, reader: &Reader, keys: &[PublicKey]) -> Result<(), String> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".minisig");
    let text = user_files::bytes(beside.as_ref(), MAX_SIGNATURES).map_err(|e| format!("its signature: {e}"))?;
    let signatures = MinisignSignature::parse_all(&text).map_err(|e| e.to_string())?;
    for key in keys.iter().filter(|key| !reader.is_signed(key, &signatures)) {
        let bytes = user_files::bytes(path, MAX_BUNDLE).map_err(|e| e.to_string())?;
        let mut trusted = Trusted::default();
        trusted.add(key, "");
        Bundle::signed(&bytes, &signatures, &trusted).map_err(|e| e.to_string())?;
        if !reader.is_of(&bytes) {
            return Err("it was changed while it was opened".into());
        }
    }
    Ok(())
}

impl BundleBackend {
    fn failed(&self, why: impl ToString) -> StoreError {
        StoreError::Backend { title: self.title(), why: why.to_string() }
    }

    fn listed(&self) -> Result<&[Listed], StoreError> {
        if let Some(listed) = self.listed.get() {
            return Ok(listed);
        }
        let places = self.reader.places().map_err(|e| self.failed(e))?;
        let listed =
            places.into_iter().map(|(place, bytes)| Listed { place, bytes, modified: self.modified }).collect();
        Ok(self.listed.get_or_init(|| listed))
    }
}

impl StoreBackend for BundleBackend {
    fn id(&self) -> &str {
        self.written.id()
    }

    fn title(&self) -> String {
        format!("bundle {}", self.at)
    }

    fn get(&self, at: &Place) -> Result<ReadResult, StoreError> {
        let over = self.written.get(at)?;
        if over != ReadResult::Nothing || at.kind() != Kind::Record {
            return Ok(over);
        }
        let document = self.reader.document(at, &self.signers).map_err(|e| self.failed(e))?;
        Ok(document.map_or(ReadResult::Nothing, ReadResult::Bytes))
    }

    fn put(&self, at: &Place, wait: Duration, next: &mut Next<'_>) -> Result<(), StoreError> {
        let below = self.get(at)?;
        self.written
            .put(at, wait, &mut |result| next(if result == ReadResult::Nothing { below.clone() } else { result }))
    }

    fn delete(&self, at: &Place) -> Result<bool, StoreError> {
        self.written.delete(at)
    }

    fn since(&self, kind: Kind, mark: Option<&Mark>) -> Result<(Vec<Listed>, Mark), StoreError> {
        let (mut listed, next) = self.written.since(kind, mark)?;
        if kind == Kind::Record && mark.is_none() {
            let over: Vec<Place> = listed.iter().map(|l| l.place.clone()).collect();
            listed.extend(self.listed()?.iter().filter(|l| !over.contains(&l.place)).cloned());
        }
        Ok((listed, next))
    }

    fn lease(&self, at: &Place, wait: Option<Duration>) -> Result<Option<Flight>, StoreError> {
        self.written.lease(at, wait)
    }

    /// Other devices' records are not looked for: a listing would read every record.
    fn elsewhere(&self, _at: &Place) -> Result<Vec<Listed>, StoreError> {
        Ok(Vec::new())
    }
}
