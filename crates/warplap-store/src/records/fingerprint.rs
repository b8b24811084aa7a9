//! Who a device is: the hard part names the chip, the soft part what may be upgraded underneath.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Identity of a device. Records are filed under the hard part; a changed soft part makes them stale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Model, capability, core count, memory: another chip has another one.
    pub hard: BTreeMap<String, String>,
    /// Driver, toolkit, library versions: upgraded without changing the chip.
    pub soft: BTreeMap<String, String>,
}

impl Fingerprint {
    /// A fingerprint from its parts.
    pub fn new<'a>(
        hard: impl IntoIterator<Item = (&'a str, String)>,
        soft: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Self {
        let own = |(k, v): (&'a str, String)| (k.to_string(), v);
        Fingerprint { hard: hard.into_iter().map(own).collect(), soft: soft.into_iter().map(own).collect() }
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
    fn a_slug_is_always_one_plain_folder_name() {
        for model in ["", "../../etc", "a/b\\c", "..", "ümläut", &"x".repeat(300)] {
            let slug = Fingerprint::new([("model", model.to_string())], []).slug();
            assert!(slug.len() <= 49 && slug.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{slug}");
        }
    }
}
