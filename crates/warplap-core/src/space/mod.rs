//! A Space: every legal Config of a variant. Axes and rules come in; configs, counts, samples and neighbours go out.

mod axis;
mod diagram;
mod error;
mod expr;
mod moves;
mod order;
mod program;
mod rows;
mod rule;

pub use crate::records::config::{Config, Real, Value};
pub use axis::Axis;
pub use diagram::Diagram;
pub use error::SpaceError;
pub use expr::{Expr, ExprError, ExprKind};
pub use moves::sampler;
pub use rows::Rows;
pub use rule::Rule;

use std::sync::{Arc, OnceLock};

/// All legal settings of one variant for one problem: axes, the rules between them, and values derived from them.
///
/// ```
/// use warplap_core::space::{Axis, Space};
/// let space = Space::single()
///     .axis(Axis::powers_of_two("block_x", 1, 1024))
///     .axis(Axis::powers_of_two("block_y", 1, 1024))
///     .constrain("32 <= block_x * block_y <= 1024").unwrap();
/// assert_eq!(space.count(), 51);
/// assert_eq!(space.configs().len(), 51);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Space {
    axes: Vec<Axis>,
    rules: Vec<Rule>,
    derived: Vec<(String, Expr)>,
    /// Where the legal configs were given one by one.
    points: Option<Arc<Vec<Vec<u16>>>>,
    result: OnceLock<Result<Arc<Diagram>, SpaceError>>,
}

impl Space {
    /// The space of a variant with nothing to tune: it holds exactly the empty Config.
    pub fn single() -> Self {
        Self::default()
    }

    /// This space with one more axis.
    pub fn axis(mut self, axis: Axis) -> Self {
        self.axes.push(axis);
        self.result = OnceLock::new();
        self
    }

    /// This space with one more rule. A rule may name only axes and derived values that are there.
    pub fn rule(mut self, rule: Rule) -> Self {
        debug_assert!(rule.axes().all(|n| self.knows(n)), "rule '{rule}' names an axis that the space does not have");
        self.rules.push(rule);
        self.result = OnceLock::new();
        self
    }

    /// This space with one more rule, written as an expression over axes and derived values that are there.
    pub fn constrain(self, text: &str) -> Result<Self, SpaceError> {
        let what = || format!("rule '{}'", crate::io::sanitize_text::brief(text.trim()));
        let rule = Rule::parse(text).map_err(|error| SpaceError::Expr { what: what(), error })?;
        if let Some(expr) = rule.expr() {
            expr.check(&self.kinds()).map_err(|error| SpaceError::Expr { what: what(), error })?;
        }
        Ok(self.rule(rule))
    }

    /// This space with a value that follows from the axes: it is part of every Config, and nobody searches it.
    pub fn derive(mut self, name: &str, text: &str) -> Result<Self, SpaceError> {
        let named = |error| SpaceError::Expr { what: format!("derived value '{name}'"), error };
        let expr = Expr::parse(text).map_err(named)?;
        expr.check(&self.kinds()).map_err(named)?;
        if self.knows(name) {
            return Err(SpaceError::Twice(name.into()));
        }
        self.derived.push((name.into(), expr));
        self.result = OnceLock::new();
        Ok(self)
    }

    /// The space of exactly these points: value numbers by axis.
    pub fn of_points(axes: Vec<Axis>, points: Vec<Vec<u16>>) -> Result<Self, SpaceError> {
        let legal = |p: &Vec<u16>| {
            p.len() == axes.len() && p.iter().zip(&axes).all(|(v, a)| usize::from(*v) < a.values().len())
        };
        debug_assert!(points.iter().all(legal), "a point is outside its axes");
        let points = points.into_iter().filter(legal).collect();
        let space = Space { axes, points: Some(Arc::new(points)), ..Space::default() };
        space.diagram()?;
        Ok(space)
    }

    /// Whether its configs were given one by one.
    pub fn is_listed(&self) -> bool {
        self.points.is_some()
    }

    /// The axes, in the order they were added.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The rules between the axes.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The derived values, each after those it may name.
    pub fn derived(&self) -> &[(String, Expr)] {
        &self.derived
    }

    fn knows(&self, name: &str) -> bool {
        self.axes.iter().any(|a| a.name() == name) || self.derived.iter().any(|d| d.0 == name)
    }

    /// The names expressions may use here, with their kinds.
    pub fn kinds(&self) -> Vec<(&str, ExprKind)> {
        let mut kinds: Vec<(&str, ExprKind)> = self.axes.iter().map(|a| (a.name(), a.kind())).collect();
        for (name, expr) in &self.derived {
            let kind = expr.check(&kinds).unwrap_or(ExprKind::Number);
            kinds.push((name, kind));
        }
        kinds
    }

    /// The axes a rule reads, through derived values too.
    pub(crate) fn read_by(&self, rule: &Rule) -> Vec<usize> {
        let mut open: Vec<&str> = rule.axes().collect();
        let mut result = Vec::new();
        while let Some(name) = open.pop() {
            match self.axes.iter().position(|a| a.name() == name) {
                Some(axis) if !result.contains(&axis) => result.push(axis),
                Some(_) => {}
                // A derived value names only what was there before it, so this ends.
                None => open.extend(self.derived.iter().filter(|d| d.0 == name).flat_map(|d| d.1.names())),
            }
        }
        result.sort_unstable();
        result
    }

    /// What is wrong with the space, if anything: unusable axes, rules that leave nothing.
    pub fn check(&self) -> Result<(), SpaceError> {
        for (i, axis) in self.axes.iter().enumerate() {
            let name = || axis.name().to_string();
            match axis.values().len() {
                0 => return Err(SpaceError::NoValues(name())),
                n if n > usize::from(u16::MAX) => return Err(SpaceError::TooManyValues(name())),
                _ => {}
            }
            if self.axes[..i].iter().any(|a| a.name() == axis.name()) {
                return Err(SpaceError::Twice(name()));
            }
        }
        if self.diagram()?.count() > 0 {
            return Ok(());
        }
        let with = |rules: &[Rule]| {
            let space = Space { rules: rules.to_vec(), result: OnceLock::new(), ..self.clone() };
            space.diagram().map_or(0, Diagram::count)
        };
        if let Some(rule) = self.rules.iter().find(|r| with(std::slice::from_ref(r)) == 0) {
            return Err(SpaceError::NeverTrue(rule.to_string()));
        }
        let first = (1..=self.rules.len()).find(|n| with(&self.rules[..*n]) == 0).unwrap_or(self.rules.len());
        let rule = first.checked_sub(1).map(|i| self.rules[i].to_string()).unwrap_or_default();
        Err(SpaceError::Contradiction(rule))
    }

    /// All legal configs as a diagram; found once, when first asked for.
    pub fn diagram(&self) -> Result<&Diagram, SpaceError> {
        let result = self.result.get_or_init(|| {
            if let Some(axis) = self.axes.iter().find(|a| a.values().len() > usize::from(u16::MAX)) {
                return Err(SpaceError::TooManyValues(axis.name().into()));
            }
            let diagram = match &self.points {
                Some(points) => Diagram::of_points(self, points),
                None => Diagram::new(self),
            };
            diagram.map(Arc::new)
        });
        result.as_deref().map_err(Clone::clone)
    }

    /// How many configs are legal; 0 where the space cannot be used (see [`Space::check`]).
    pub fn count(&self) -> u128 {
        self.diagram().map_or(0, Diagram::count)
    }

    /// Every legal config as a table of value numbers; `None` when there are too many for memory.
    pub fn rows(&self) -> Option<Rows> {
        Rows::of(self.diagram().ok()?)
    }

    /// Every legal Config, in the order of the axes' values. For spaces of at most some hundred thousand; larger ones
    /// are asked by index.
    pub fn configs(&self) -> Vec<Config> {
        let Some(rows) = self.rows() else { return Vec::new() };
        let mut points: Vec<Vec<u16>> = (0..rows.len()).map(|row| rows.point(row)).collect();
        points.sort_unstable();
        points.iter().map(|p| self.config(p)).collect()
    }

    /// The setting a user gets without tuning: every axis at its default, or the first legal Config when the rules
    /// forbid that. `None` only when no Config is legal.
    pub fn default_config(&self) -> Option<Config> {
        self.default_point().map(|p| self.config(&p))
    }

    /// As [`Space::default_config`], by value numbers.
    pub fn default_point(&self) -> Option<Vec<u16>> {
        if self.axes.iter().all(|a| !a.values().is_empty()) {
            let point: Vec<u16> = self.axes.iter().map(|a| a.default_number()).collect();
            if self.is_legal(&point, &self.config(&point)) {
                return Some(point);
            }
        }
        self.diagram().ok()?.point(0)
    }

    /// Whether a Config sets exactly these axes, each to a legal value, and breaks no rule. Records are data from
    /// disk: nothing is built from one before this said yes.
    pub fn contains(&self, config: &Config) -> bool {
        self.point(config).is_some()
    }
}

#[cfg(test)]
mod tests;
