//! A Config: one setting of every axis of a Space, by name.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The value of one axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A switch.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(Real),
    /// A named choice.
    Text(String),
}

/// A float that can be compared, ordered and hashed: by its bits, so that a NaN equals itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Real {}
impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Real {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
impl std::hash::Hash for Real {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(b) => write!(f, "{b}"),
            Value::Int(i) => write!(f, "{i}"),
            // Always with its point, so that it reads back as what it is.
            Value::Float(x) => write!(f, "{:?}", x.0),
            Value::Text(t) => f.write_str(t),
        }
    }
}

impl From<i64> for Value {
    fn from(v: i64) -> Self {
        Value::Int(v)
    }
}
impl From<f64> for Value {
    fn from(v: f64) -> Self {
        Value::Float(Real(v))
    }
}
impl From<bool> for Value {
    fn from(v: bool) -> Self {
        Value::Bool(v)
    }
}
impl From<&str> for Value {
    fn from(v: &str) -> Self {
        Value::Text(v.to_string())
    }
}

/// One setting by named axes. The empty Config is the setting of a variant with no axes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config(pub BTreeMap<String, Value>);

impl Config {
    /// The empty setting.
    pub fn new() -> Self {
        Self::default()
    }

    /// This setting with one more axis set.
    pub fn with(mut self, axis: &str, value: impl Into<Value>) -> Self {
        self.0.insert(axis.to_string(), value.into());
        self
    }

    /// The value of an axis, if it is set.
    pub fn get(&self, axis: &str) -> Option<&Value> {
        self.0.get(axis)
    }

    /// A number; `None` when the axis is missing or not a number.
    pub fn int(&self, axis: &str) -> Option<i64> {
        match self.0.get(axis) {
            Some(Value::Int(i)) => Some(*i),
            _ => None,
        }
    }

    /// A non-negative number as a size; `None` when the axis is missing, negative or not a number.
    pub fn size(&self, axis: &str) -> Option<usize> {
        self.int(axis).and_then(|i| usize::try_from(i).ok())
    }

    /// A switch; `None` when the axis is missing or not a switch.
    pub fn flag(&self, axis: &str) -> Option<bool> {
        match self.0.get(axis) {
            Some(Value::Bool(b)) => Some(*b),
            _ => None,
        }
    }

    /// Reads `mc=64,pack=true,isa=avx2`; the empty text is the empty Config.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut config = Config::new();
        for part in text.split(',').filter(|p| !p.trim().is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| format!("'{part}' in a config should read axis=value"))?;
            let (name, value) = (name.trim(), value.trim());
            if name.is_empty() || value.is_empty() {
                return Err(format!("'{part}' in a config should read axis=value"));
            }
            let value = match value {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                v => match (v.parse::<i64>(), v.parse::<f64>()) {
                    (Ok(i), _) => Value::Int(i),
                    // "nan" and "inf" are names, and so is what is too large for a number.
                    (_, Ok(x)) if x.is_finite() => Value::Float(Real(x)),
                    _ => Value::from(v),
                },
            };
            if config.0.insert(name.to_string(), value).is_some() {
                return Err(format!("axis '{name}' is set twice in a config"));
            }
        }
        Ok(config)
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_reads_back_what_it_prints() {
        let config = Config::new().with("mc", 64).with("pack", true).with("isa", "avx2");
        assert_eq!(config.to_string(), "isa=avx2,mc=64,pack=true");
        assert_eq!(Config::parse(&config.to_string()).unwrap(), config);
    }

    #[test]
    fn a_broken_config_names_the_part() {
        for name in ["nan", "-inf", "1e400"] {
            let config = Config::parse(&format!("x={name}")).unwrap();
            assert_eq!(config.get("x"), Some(&Value::from(name)));
            assert_eq!(Config::parse(&config.to_string()), Ok(config));
        }
        assert!(Config::parse("mc").unwrap_err().contains("'mc'"));
        assert!(Config::parse("mc=1,mc=2").unwrap_err().contains("twice"));
    }
}
