//! A draft: the spec file as it was written, every part with its place in the file. Nothing is worked out yet.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Draft {
    pub(super) name: Option<Spanned<String>>,
    pub(super) language: Option<Spanned<String>>,
    pub(super) source: Spanned<String>,
    pub(super) entry: Spanned<String>,
    #[serde(default)]
    pub(super) flags: Vec<String>,
    #[serde(default)]
    pub(super) headers: Vec<Spanned<String>>,
    pub(super) budget: Option<Spanned<f64>>,
    #[serde(default)]
    pub(super) rules: Vec<Spanned<String>>,
    pub(super) configs: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) constants: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    pub(super) axes: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    pub(super) derived: BTreeMap<String, Spanned<String>>,
    pub(super) arguments: Vec<Spanned<ArgumentDraft>>,
    pub(super) launch: Option<Spanned<LaunchDraft>>,
    pub(super) reference: Option<Spanned<ReferenceDraft>>,
    pub(super) tolerance: Option<Spanned<ToleranceDraft>>,
    pub(super) metric: Option<Spanned<MetricDraft>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArgumentDraft {
    pub(super) name: String,
    pub(super) dtype: Spanned<String>,
    pub(super) role: Option<Spanned<String>>,
    pub(super) shape: Option<Spanned<Value>>,
    pub(super) fill: Option<Spanned<String>>,
    pub(super) file: Option<Spanned<String>>,
    pub(super) value: Option<Spanned<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaunchDraft {
    pub(super) grid: Spanned<Value>,
    pub(super) block: Spanned<Value>,
    pub(super) shared: Option<Spanned<Value>>,
    pub(super) cluster: Option<Spanned<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReferenceDraft {
    pub(super) source: Option<Spanned<String>>,
    pub(super) entry: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) flags: Vec<String>,
    pub(super) file: Option<Spanned<Files>>,
    pub(super) python: Option<Spanned<String>>,
    pub(super) launch: Option<Spanned<LaunchDraft>>,
}

/// One file, or one for each output.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected the name of a file, or a list of them")]
pub(super) enum Files {
    One(String),
    Several(Vec<String>),
}

impl Files {
    pub(super) fn names(&self) -> &[String] {
        match self {
            Files::One(name) => std::slice::from_ref(name),
            Files::Several(names) => names,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToleranceDraft {
    pub(super) relative: Option<f64>,
    pub(super) absolute: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MetricDraft {
    pub(super) flops: Option<Spanned<Value>>,
    pub(super) bytes: Option<Spanned<Value>>,
    pub(super) objective: Option<Spanned<String>>,
    pub(super) goal: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) energy: bool,
}
