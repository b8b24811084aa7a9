//! An Arm: one variant's part of a search, as indices into its space. Nothing is listed that nobody asks for.

use crate::candidate::{Candidate, SourceHash};
use crate::candidates::variant::Priority;
use crate::space::{Config, Space};

/// One variant's part of a search: what is left of its space after pruning.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The variant's id.
    pub variant: String,
    /// The code behind it.
    pub source: SourceHash,
    /// How eagerly it should be raced.
    pub priority: Priority,
    /// Its space, for moves.
    pub space: Space,
    /// Indices into the space, in the order they should be tried; `None`: all of it, the default first.
    kept: Option<Vec<u128>>,
}

impl Arm {
    /// All of a space.
    pub fn new(variant: &str, source: SourceHash, priority: Priority, space: Space) -> Self {
        Arm { variant: variant.into(), source, priority, space, kept: None }
    }

    /// Only these indices of the space, tried in this order.
    pub fn keep(self, indices: Vec<u128>) -> Self {
        Arm { kept: Some(indices), ..self }
    }

    /// How many configs it may propose.
    pub fn len(&self) -> u64 {
        let count = self.kept.as_ref().map_or_else(|| self.space.count(), |kept| kept.len() as u128);
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// Whether it has nothing to propose.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its n-th index into the space, in the order they should be tried.
    pub fn nth(&self, n: u64) -> Option<u128> {
        match &self.kept {
            Some(kept) => kept.get(usize::try_from(n).ok()?).copied(),
            None => {
                let default = self.default_index()?;
                let index = match u128::from(n) {
                    0 => default,
                    // The default's own turn has passed.
                    n if n <= default => n - 1,
                    n => n,
                };
                (index < self.space.count()).then_some(index)
            }
        }
    }

    fn default_index(&self) -> Option<u128> {
        self.space.diagram().ok()?.index(&self.space.default_point()?)
    }

    pub(crate) fn kept(&self) -> Option<&[u128]> {
        self.kept.as_deref()
    }

    /// Its indices with their configs: the default first, then in the order of the axes' values.
    pub fn listed(&self) -> Vec<(u128, Config)> {
        let Ok(diagram) = self.space.diagram() else { return Vec::new() };
        let mut points: Vec<Vec<u16>> = (0..self.space.count()).filter_map(|i| diagram.point(i)).collect();
        points.sort_unstable();
        if let Some(at) = self.space.default_point().and_then(|d| points.iter().position(|p| *p == d)) {
            points[..=at].rotate_right(1);
        }
        let listed = |p: &Vec<u16>| Some((diagram.index(p)?, self.space.config(p)));
        points.iter().filter_map(listed).collect()
    }

    /// Whether it may propose a config.
    pub fn holds(&self, config: &Config) -> bool {
        self.index(config).is_some()
    }

    /// The index into the space of a config that it may propose.
    pub(crate) fn index(&self, config: &Config) -> Option<u128> {
        let index = self.space.diagram().ok()?.index(&self.space.point(config)?)?;
        self.kept.as_ref().is_none_or(|kept| kept.contains(&index)).then_some(index)
    }

    /// Takes its first config out as an arm of its own.
    pub(crate) fn take_first(&mut self) -> Option<Arm> {
        if self.kept.is_none() {
            self.kept = Some(self.listed().into_iter().map(|l| l.0).collect());
        }
        let kept = self.kept.as_mut()?;
        if kept.is_empty() {
            return None;
        }
        let first = vec![kept.remove(0)];
        Some(self.clone().keep(first))
    }

    /// One of its configs as a candidate.
    pub fn candidate(&self, config: Config) -> Candidate {
        Candidate { variant: self.variant.clone(), config, source: self.source.clone() }
    }
}
