//! A class of devices, as a machine tells of it.

use serde::{Deserialize, Serialize};

use super::{Job, LineError, line, name, policy, read};

/// A class of devices as an engine found it, with the machines that have one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// The folder name, `Fingerprint::slug`.
    pub device: String,
    /// The versions, `Fingerprint::soft_id`.
    pub soft: String,
    /// `cpu`, `cuda`.
    pub kind: String,
    /// How its devices measure unless somebody says otherwise.
    pub policy: String,
    /// The machine.
    #[serde(default)]
    pub node: String,
    /// The device's name on that machine: `cpu`, `cuda:0`.
    #[serde(default)]
    pub name: String,
    /// Which card it is, whoever asks: a GPU's own name, or `cpu`.
    #[serde(default)]
    pub card: String,
}

impl Class {
    /// Reads a line.
    pub fn read(line: &str) -> Result<Class, LineError> {
        let class: Class = read(line, "class")?;
        name("device", &class.device, 64)?;
        name("soft", &class.soft, 64)?;
        policy(&class.policy)?;
        Ok(class)
    }

    /// The line of it.
    pub fn line(&self) -> String {
        line(self)
    }

    /// Whether a job is for it.
    pub fn suits(&self, job: &Job) -> bool {
        let here = || job.cards.is_empty() || job.cards.contains(&self.seat());
        self.device == job.device && self.soft == job.soft && here()
    }

    /// The card's name in the whole fleet, which records carry: a GPU's own says nothing of the machine it is in.
    pub fn seat(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.:".contains(c) { c } else { '-' };
        match self.card.starts_with("GPU-") {
            true => self.card.clone(),
            false => format!("{}:{}", self.node, self.card),
        }
        .chars()
        .map(plain)
        .collect()
    }
}
