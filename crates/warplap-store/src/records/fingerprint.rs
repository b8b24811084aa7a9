//! Who a device is: the hard part names the chip, the soft part what may be upgraded underneath. Libraries that race beside
//! are no part of it: their versions are facts of the candidates that call them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Identity of a device. Records are filed under the hard part; a changed soft part makes them stale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Model, capability, core count, memory: another chip has another one.
    pub hard: BTreeMap<String, String>,
    /// Driver, toolkit, the way races are run: upgraded without changing the chip.
    pub soft: BTreeMap<String, String>,
    /// Versions of the host program's libraries that race on it. A record says them; whether it holds is for the
    /// candidates' own identities to say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub libraries: BTreeMap<String, String>,
}

impl Fingerprint {
    /// A fingerprint from its parts.
    pub fn new<'a>(
        hard: impl IntoIterator<Item = (&'a str, String)>,
        soft: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Self {
        let own = |(k, v): (&'a str, String)| (k.to_string(), v);
        let (hard, soft) = (hard.into_iter().map(own).collect(), soft.into_iter().map(own).collect());
        Fingerprint { hard, soft, libraries: BTreeMap::new() }
    }

    /// All versions that a record made here says: the device's own, and those of libraries that race on it.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let both = self.libraries.iter().chain(&self.soft);
        both.map(|(name, version)| (name.clone(), version.clone())).collect()
    }

    /// Whether a record that says these versions was made under what the device has now. What else it says is of
    /// libraries that raced beside.
    pub fn holds(&self, versions: &BTreeMap<String, String>) -> bool {
        has_all(versions, &self.soft)
    }

    /// The folder name of this device: readable words of the model, then eight digits of the hard part's hash.
    pub fn slug(&self) -> String {
        let model = self.hard.get("model").map_or("device", String::as_str);
        let mut words: String = model
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect::<String>()
            .split('-')
            .filter(|w| !w.is_empty())
            .collect::<Vec<_>>()
            .join("-");
        words.truncate(40);
        format!("{}-{}", words.trim_end_matches('-'), &digest(&self.hard)[..8])
    }

    /// Short identity of the soft part.
    pub fn soft_id(&self) -> String {
        soft_id(&self.soft)
    }
}

/// Short identity of a soft part.
pub fn soft_id(soft: &BTreeMap<String, String>) -> String {
    digest(soft)[..16].to_string()
}

/// Whether some facts hold all of some others.
pub(crate) fn has_all(facts: &BTreeMap<String, String>, of: &BTreeMap<String, String>) -> bool {
    of.iter().all(|(name, version)| facts.get(name) == Some(version))
}

/// The most facts among which a part is looked for.
const MOST_FACTS: usize = 8;

/// Whether a record that says these versions was made under the soft part of this identity: some of the facts make it,
/// the others are of libraries.
pub fn is_under(versions: &BTreeMap<String, String>, soft: &str) -> bool {
    let facts: Vec<_> = versions.iter().take(MOST_FACTS).collect();
    let part = |set: u32| facts.iter().enumerate().filter(move |(n, _)| set >> n & 1 == 1).map(|(_, fact)| *fact);
    let owned = |set| part(set).map(|(name, version)| (name.clone(), version.clone())).collect();
    soft_id(versions) == soft || (0..1 << facts.len()).any(|set| soft_id(&owned(set)) == soft)
}

fn digest(part: &BTreeMap<String, String>) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in part.iter().flat_map(|(k, v)| [k, v]) {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_hard_field_changes_the_folder_and_no_soft_one_does() {
        let one = Fingerprint::new([("model", "Xeon(R) 8480".into()), ("cores", "2".into())], [("lib", "1".into())]);
        let mut other = one.clone();
        other.soft.insert("lib".into(), "2".into());
        assert_eq!(one.slug(), other.slug());
        assert_ne!(one.soft_id(), other.soft_id());
        other.hard.insert("cores".into(), "4".into());
        assert_ne!(one.slug(), other.slug());
        assert!(one.slug().starts_with("xeon-r-8480-"), "{}", one.slug());
    }

    #[test]
    fn a_record_holds_where_all_of_the_device_is_as_it_was_whatever_libraries_raced_beside() {
        let mut device = Fingerprint::new([], [("race", "1".into()), ("driver", "2".into())]);
        device.libraries.insert("torch".into(), "2.11".into());
        let said = device.versions();
        assert_eq!(said.len(), 3);
        let plain = Fingerprint::new([], [("race", "1".into()), ("driver", "2".into())]);
        assert!(plain.holds(&said) && device.holds(&plain.versions()));
        assert!(is_under(&said, &plain.soft_id()) && is_under(&said, &soft_id(&said)));
        for fact in ["race", "driver"] {
            let mut changed = said.clone();
            changed.insert(fact.into(), "3".into());
            assert!(!plain.holds(&changed) && !is_under(&changed, &plain.soft_id()), "{fact}");
            changed.remove(fact);
            assert!(!plain.holds(&changed) && !is_under(&changed, &plain.soft_id()), "{fact}");
        }
    }

    #[test]
    fn a_slug_is_always_one_plain_folder_name() {
        for model in ["", "../../etc", "a/b\\c", "..", "ümläut", &"x".repeat(300)] {
            let slug = Fingerprint::new([("model", model.to_string())], []).slug();
            assert!(slug.len() <= 49 && slug.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{slug}");
        }
    }
}
