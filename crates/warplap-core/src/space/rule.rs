//! A Rule: a constraint between axes, with the text a person reads.

use std::fmt;
use std::sync::Arc;

use super::config::Config;
use crate::contained::caught;

/// A constraint between axes. It names the axes it reads, so that enumeration can ask it as early as possible.
#[derive(Clone)]
pub struct Rule {
    text: String,
    axes: Vec<&'static str>,
    holds: Arc<dyn Fn(&Config) -> bool + Send + Sync>,
}

impl Rule {
    /// A rule with its text, the axes it reads, and the test itself.
    pub fn on(text: &str, axes: &[&'static str], holds: impl Fn(&Config) -> bool + Send + Sync + 'static) -> Self {
        Rule { text: text.into(), axes: axes.to_vec(), holds: Arc::new(holds) }
    }

    /// Whether a Config that sets all of this rule's axes obeys it. A rule that panics over one does not hold.
    pub fn holds(&self, config: &Config) -> bool {
        caught(|| (self.holds)(config)).unwrap_or(false)
    }

    /// The axes it reads.
    pub fn axes(&self) -> &[&'static str] {
        &self.axes
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({})", self.text)
    }
}
