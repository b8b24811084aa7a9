//! Bundles that are objects: the address of one comes in (`s3://bucket/name`, `gs:`, `az:`, `https:`), the path of a copy
//! near by goes out. The object is asked for when the copy is older than a while, by one process of a machine, and
//! fetched where it has changed; processes that start by the hundred read the copy.
//!
//! A copy lies in a folder of its own content. `about.json` names the one that counts and is written last: whoever reads
//! meanwhile sees the old one or the new one, and what does not hold never replaces what does.

use std::fs::{self, DirBuilder};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::{Error, GetOptions, GetResult, ObjectStore, ObjectStoreExt, path};
use serde::{Deserialize, Serialize};
use url::Url;
use warplap_core::store::bundle::MAX_BUNDLE;
use warplap_core::store::minisign::MAX_SIGNATURES;
use warplap_core::{sanitize_text, user_files};

use crate::gpu_lock::GpuLock;

/// How long the store of objects may take to say whether there is something new: with a copy near by, and without one.
const PATIENCE: Duration = Duration::from_secs(3);
const FIRST: Duration = Duration::from_secs(20);
/// How long the whole object may take.
const FETCHING: Duration = Duration::from_secs(300);
/// The bytes of `about.json` at the most.
const NOTE: u64 = 1 << 16;

/// What is asked for.
pub(crate) struct Object<'a> {
    /// Its address, without what is asked of the bundle.
    pub(crate) url: &'a str,
    /// The copy is taken as it is for so long; for ever without.
    pub(crate) refresh: Option<Duration>,
    /// Where copies are kept.
    pub(crate) folder: &'a Path,
}

/// The copy that counts.
#[derive(Serialize, Deserialize)]
struct About {
    url: String,
    /// The folder of the copy: the hash of its bytes and its signatures'.
    copy: String,
    e_tag: Option<String>,
    modified: Option<SystemTime>,
}

/// Looks at a bundle, beside the one before it where there was one, and says why it is not taken.
pub(crate) type Sound<'a> = &'a dyn Fn(&Path, Option<&Path>) -> Result<(), String>;

impl Object<'_> {
    /// The bundle's path near by.
    pub(crate) fn near(&self, sound: Sound<'_>) -> Result<PathBuf, String> {
        let dir = self.folder.join(&blake3::hash(self.url.as_bytes()).to_hex()[..32]);
        if let Some(path) = self.kept(&dir, self.refresh, sound) {
            return Ok(path);
        }
        private(&dir)?;
        let waiting = if self.kept(&dir, None, sound).is_some() { PATIENCE } else { FIRST };
        // One process of a machine asks, as one process has a card.
        let turn = GpuLock::take(&dir, "turn", waiting).map_err(|e| format!("{}: {e}", dir.display()))?;
        // Somebody else may have fetched it while this one waited.
        if let Some(path) = self.kept(&dir, self.refresh, sound) {
            return Ok(path);
        }
        let old = self.kept(&dir, None, sound);
        let new = match turn {
            Some(_) => self.renew(&dir, old.as_deref(), sound),
            None => Err("another process has been fetching it for long".into()),
        };
        match (new, old) {
            (Ok(path), _) => Ok(path),
            (Err(why), Some(old)) => {
                tracing::warn!("{}: {why}; the copy that was fetched earlier goes on", self.url);
                Ok(old)
            }
            (Err(why), None) => Err(why),
        }
    }

    /// The copy, where it is no older than that and still holds.
    fn kept(&self, dir: &Path, no_older: Option<Duration>, sound: Sound<'_>) -> Option<PathBuf> {
        let note = dir.join("about.json");
        let young = |limit| fs::metadata(&note).ok()?.modified().ok()?.elapsed().ok().filter(|age| *age < limit);
        if let Some(limit) = no_older {
            young(limit)?;
        }
        let path = self.about(dir)?.bundle(dir);
        sound(&path, None).is_ok().then_some(path)
    }

    fn about(&self, dir: &Path) -> Option<About> {
        let text = user_files::bytes(&dir.join("about.json"), NOTE).ok()?;
        let about: About = serde_json::from_slice(&text).ok()?;
        let plain = about.copy.len() == 32 && about.copy.bytes().all(|b| b.is_ascii_hexdigit());
        (plain && about.url == self.url).then_some(about)
    }

    /// Asks whether there is a new one and fetches it.
    fn renew(&self, dir: &Path, old: Option<&Path>, sound: Sound<'_>) -> Result<PathBuf, String> {
        let io = |e: std::io::Error| format!("{}: {e}", dir.display());
        let about = old.and_then(|_| self.about(dir));
        let (about, path) = match (fetch(self.url, about.as_ref())?, about, old) {
            (None, Some(about), Some(old)) => (about, old.to_path_buf()),
            (None, ..) => return Err("nothing is said to have changed, and there is no copy".into()),
            (Some(new), before, _) => {
                // Both: another signature must not take the place of one that holds.
                let both = blake3::Hasher::new().update(&new.bundle).update(&new.signatures).finalize();
                let copy = both.to_hex()[..32].to_string();
                let about = About { url: self.url.into(), copy, e_tag: new.e_tag, modified: new.modified };
                let path = about.bundle(dir);
                private(&dir.join(&about.copy))?;
                user_files::write(&path, &new.bundle).map_err(io)?;
                user_files::write(&path.with_extension("minisig"), &new.signatures).map_err(io)?;
                if let Err(why) = sound(&path, old.filter(|old| *old != path)) {
                    if before.as_ref().is_none_or(|before| before.copy != about.copy) {
                        let _ = fs::remove_dir_all(dir.join(&about.copy));
                    }
                    return Err(why);
                }
                forget(dir, [Some(&about.copy), before.as_ref().map(|b| &b.copy)]);
                (about, path)
            }
        };
        let text = serde_json::to_vec(&about).map_err(|e| e.to_string())?;
        user_files::write(&dir.join("about.json"), &text).map_err(io)?;
        Ok(path)
    }
}

impl About {
    fn bundle(&self, dir: &Path) -> PathBuf {
        dir.join(&self.copy).join("bundle")
    }
}

/// Makes a folder that is this user's alone.
fn private(dir: &Path) -> Result<(), String> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(|e| format!("{}: {e}", dir.display()))
}

/// Removes copies but for the newest and the one before it, which somebody may be opening.
fn forget(dir: &Path, but: [Option<&String>; 2]) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let stays = but.iter().flatten().any(|kept| name.to_str() == Some(kept));
        if !stays && entry.path().is_dir() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// An object, with its signatures.
struct Fetched {
    bundle: Vec<u8>,
    signatures: Vec<u8>,
    e_tag: Option<String>,
    modified: Option<SystemTime>,
}

/// Fetches an object and the signatures beside it; nothing where it is still the one that is known.
fn fetch(url: &str, known: Option<&About>) -> Result<Option<Fetched>, String> {
    // Where the program has chosen another one, that one stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let (store, at) = place(url)?;
    let beside = path::Path::parse(format!("{at}.minisig")).map_err(|e| e.to_string())?;
    let patience = if known.is_some() { PATIENCE } else { FIRST };
    let asking = GetOptions {
        if_none_match: known.and_then(|k| k.e_tag.clone()),
        // Servers that know no tags go by the time.
        if_modified_since: known.filter(|k| k.e_tag.is_none()).and_then(|k| k.modified).map(Into::into),
        ..GetOptions::default()
    };
    let answer = runtime.block_on(async {
        let late = |_| format!("no answer within {} s", patience.as_secs());
        let result = match tokio::time::timeout(patience, store.get_opts(&at, asking)).await.map_err(late)? {
            Err(Error::NotModified { .. }) => return Ok(None),
            result => result.map_err(|e| said(&e))?,
        };
        let (e_tag, modified) = (result.meta.e_tag.clone(), Some(SystemTime::from(result.meta.last_modified)));
        let both = async {
            let bundle = whole(result, MAX_BUNDLE).await?;
            let signatures = store.get(&beside).await.map_err(|e| format!("its signature: {}", said(&e)))?;
            Ok::<_, String>((bundle, whole(signatures, MAX_SIGNATURES).await?))
        };
        let late = |_| format!("it did not come within {} s", FETCHING.as_secs());
        let (bundle, signatures) = tokio::time::timeout(FETCHING, both).await.map_err(late)??;
        Ok(Some(Fetched { bundle, signatures, e_tag, modified }))
    });
    // A request that was given up may still wait for a name; nobody waits for it.
    runtime.shutdown_background();
    answer
}

/// The store of an address and the object's place in it. Rights, regions and other hosts come from the environment
/// (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`, `GOOGLE_…`, `AZURE_…`), as for other programs.
fn place(url: &str) -> Result<(Arc<dyn ObjectStore>, path::Path), String> {
    let url = Url::parse(url).map_err(|e| e.to_string())?;
    let settings = std::env::vars_os().filter_map(|(name, value)| {
        let name =
            name.into_string().ok().filter(|n| ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|p| n.starts_with(p)))?;
        Some((name.to_ascii_lowercase(), value.into_string().ok()?))
    });
    // Whoever writes http: in the address has chosen it.
    let plain = (url.scheme() == "http").then(|| ("allow_http".to_string(), "true".to_string()));
    let (store, at) = object_store::parse_url_opts(&url, settings.chain(plain)).map_err(|e| said(&e))?;
    Ok((store.into(), at))
}

async fn whole(result: GetResult, most: u64) -> Result<Vec<u8>, String> {
    match result.meta.size > most {
        true => Err(format!("it has {} bytes, more than {most}", result.meta.size)),
        false => result.bytes().await.map(Into::into).map_err(|e| said(&e)),
    }
}

/// What an error says, with its causes and in one line.
fn said(e: &Error) -> String {
    match e {
        Error::NotFound { path, .. } => format!("there is no object '{path}'"),
        e => {
            let mut text = e.to_string();
            let mut cause = std::error::Error::source(e);
            while let Some(next) = cause {
                let more = next.to_string();
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
                cause = next.source();
            }
            sanitize_text::shown(text)
        }
    }
}
