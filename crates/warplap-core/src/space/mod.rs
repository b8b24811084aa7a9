//! A Space: every legal Config of a variant. Axes and rules come in; configs go out.

mod axis;
mod config;
mod rule;

pub use axis::Axis;
pub use config::{Config, Value};
pub use rule::Rule;

/// All legal settings of one variant for one problem: axes, and the rules between them.
#[derive(Clone, Debug, Default)]
pub struct Space {
    axes: Vec<Axis>,
    rules: Vec<Rule>,
}

impl Space {
    /// The space of a variant with nothing to tune: it holds exactly the empty Config.
    pub fn single() -> Self {
        Self::default()
    }

    /// This space with one more axis.
    pub fn axis(mut self, axis: Axis) -> Self {
        self.axes.push(axis);
        self
    }

    /// This space with one more rule. A rule may name only axes that are there.
    pub fn rule(mut self, rule: Rule) -> Self {
        debug_assert!(
            rule.axes().iter().all(|name| self.axes.iter().any(|a| a.name() == *name)),
            "rule '{rule}' names an axis that the space does not have"
        );
        self.rules.push(rule);
        self
    }

    /// The axes, in the order they were added.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The rules between the axes.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Every legal Config. Axes are set one by one and a rule is asked as soon as all its axes are set, so illegal
    /// corners are cut off whole instead of being filtered from the product.
    pub fn configs(&self) -> Vec<Config> {
        let mut found = Vec::new();
        self.extend(&mut Config::new(), 0, &mut found);
        found
    }

    fn extend(&self, partial: &mut Config, depth: usize, found: &mut Vec<Config>) {
        let Some(axis) = self.axes.get(depth) else {
            found.push(partial.clone());
            return;
        };
        for value in axis.values() {
            partial.0.insert(axis.name().to_string(), value.clone());
            let decided = |rule: &&Rule| {
                rule.axes().iter().any(|n| *n == axis.name())
                    && rule.axes().iter().all(|n| self.axes[..=depth].iter().any(|a| a.name() == *n))
            };
            if self.rules.iter().filter(decided).all(|rule| rule.holds(partial)) {
                self.extend(partial, depth + 1, found);
            }
        }
        partial.0.remove(axis.name());
    }

    /// The setting a user gets without tuning: every axis at its default, or the first legal Config when the rules
    /// forbid that. `None` only when no Config is legal.
    pub fn default_config(&self) -> Option<Config> {
        let mut config = Config::new();
        for axis in &self.axes {
            config.0.insert(axis.name().to_string(), axis.default_value()?.clone());
        }
        if self.rules.iter().all(|rule| rule.holds(&config)) {
            return Some(config);
        }
        self.configs().into_iter().next()
    }

    /// Whether a Config sets exactly these axes, each to a legal value, and breaks no rule. Records are data from
    /// disk: nothing is built from one before this said yes.
    pub fn contains(&self, config: &Config) -> bool {
        config.0.len() == self.axes.len()
            && self.axes.iter().all(|a| config.get(a.name()).is_some_and(|v| a.values().contains(v)))
            && self.rules.iter().all(|rule| rule.holds(config))
    }

    /// Legal configs that differ from `config` in one axis by one step.
    pub fn neighbours(&self, config: &Config) -> Vec<Config> {
        let mut near = Vec::new();
        for axis in &self.axes {
            let Some(from) = config.get(axis.name()) else {
                continue;
            };
            for value in axis.neighbours(from) {
                let moved = config.clone().with(axis.name(), value.clone());
                if self.contains(&moved) {
                    near.push(moved);
                }
            }
        }
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles() -> Space {
        Space::single()
            .axis(Axis::powers_of_two("mc", 8, 64))
            .axis(Axis::powers_of_two("nc", 8, 64))
            .axis(Axis::switch("pack"))
            .rule(Rule::on("mc * nc <= 512", &["mc", "nc"], |c| {
                c.int("mc").unwrap_or(0) * c.int("nc").unwrap_or(0) <= 512
            }))
    }

    #[test]
    fn enumeration_equals_filtering_the_product() {
        let space = tiles();
        let mut filtered = 0;
        for mc in [8, 16, 32, 64] {
            for nc in [8, 16, 32, 64] {
                filtered += if mc * nc <= 512 { 2 } else { 0 };
            }
        }
        let configs = space.configs();
        assert_eq!(configs.len(), filtered);
        assert!(configs.iter().all(|c| space.contains(c)));
    }

    #[test]
    fn a_space_refuses_what_it_does_not_hold() {
        let space = tiles();
        let good = space.default_config().unwrap();
        assert!(space.contains(&good));
        assert!(!space.contains(&good.clone().with("mc", 9)));
        assert!(!space.contains(&good.clone().with("extra", 1)));
        assert!(!space.contains(&good.with("mc", 64).with("nc", 64)));
        assert!(!space.contains(&Config::new()));
        assert!(Space::single().contains(&Config::new()));
    }

    #[test]
    fn neighbours_are_legal_and_one_step_away() {
        let space = tiles();
        for near in space.neighbours(&space.default_config().unwrap()) {
            assert!(space.contains(&near));
        }
    }
}
