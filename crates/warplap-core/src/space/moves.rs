//! Between Configs, points and indices of a space: access by index, sampling, neighbours.

use super::{Config, Rule, Space, Value};

/// What draws configs for [`Space::sample`]; the same seed draws the same ones.
pub fn sampler(seed: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed)
}

impl Space {
    /// The Config of a point: its axes by name, and the derived values.
    pub fn config(&self, point: &[u16]) -> Config {
        let mut config = Config::new();
        for (axis, value) in self.axes.iter().zip(point) {
            config.0.insert(axis.name().to_string(), axis.values()[usize::from(*value)].clone());
        }
        self.complete(&mut config);
        config
    }

    /// Puts the derived values into a Config that sets the axes.
    fn complete(&self, config: &mut Config) {
        for (name, expr) in &self.derived {
            // One that has no value here (a division by zero) is left out: the rules decide whether that is legal.
            if let Ok(value) = expr.eval(|n| config.get(n).cloned()) {
                config.0.insert(name.clone(), value);
            }
        }
    }

    /// The point of a legal Config; `None` when it is not one.
    pub fn point(&self, config: &Config) -> Option<Vec<u16>> {
        let number = |axis: &super::Axis| axis.number(config.get(axis.name())?);
        let point = self.axes.iter().map(number).collect::<Option<Vec<u16>>>()?;
        if !self.is_legal(&point, config) {
            return None;
        }
        // Every name is an axis or a derived value, and those follow from the axes.
        let same = match self.derived.is_empty() {
            true => config.0.len() == self.axes.len(),
            false => self.config(&point) == *config,
        };
        same.then_some(point)
    }

    /// Whether a point, given as its Config too, is legal. A question about one config does not list them all.
    pub(super) fn is_legal(&self, point: &[u16], config: &Config) -> bool {
        match (self.result.get(), &self.points) {
            (Some(Ok(diagram)), _) => diagram.index(point).is_some(),
            (_, Some(points)) => points.iter().any(|p| p == point),
            _ => self.rules.iter().all(|rule| rule.holds(config)),
        }
    }

    /// What a rule may look at while the axes it reads are set.
    pub(super) fn partial(&self, picks: &[u16], rule: &Rule) -> Config {
        let mut config = Config::new();
        for axis in self.read_by(rule) {
            let value: &Value = &self.axes[axis].values()[usize::from(picks[axis])];
            config.0.insert(self.axes[axis].name().to_string(), value.clone());
        }
        self.complete(&mut config);
        config
    }

    /// The Config with this index; `None` when the index is not below [`Space::count`].
    pub fn at(&self, index: u128) -> Option<Config> {
        self.diagram().ok()?.point(index).map(|p| self.config(&p))
    }

    /// The index of a legal Config.
    pub fn index(&self, config: &Config) -> Option<u128> {
        self.diagram().ok()?.index(&self.point(config)?)
    }

    /// A legal Config, each as likely as the other, without a list of them. `None` when nothing is legal.
    pub fn sample(&self, rng: &mut fastrand::Rng) -> Option<Config> {
        match self.count() {
            0 => None,
            count => self.at(rng.u128(..count)),
        }
    }

    /// The legal Config nearest to one of a space with other values or rules: each axis at its value there if that is
    /// legal, else at the nearest number that is, else at its default. `None` when nothing is legal.
    pub fn nearest(&self, config: &Config) -> Option<Config> {
        let mut point = self.default_point()?;
        // Twice: what an axis may be can hang on those behind it.
        for axis in (0..self.axes.len()).chain(0..self.axes.len()) {
            let Some(wanted) = config.get(self.axes[axis].name()) else { continue };
            let before = point[axis];
            let mut to_try = self.axes[axis].nearest(wanted).into_iter();
            let legal = |value: &u16| {
                point[axis] = *value;
                self.is_legal(&point, &self.config(&point))
            };
            let result = to_try.find(legal);
            point[axis] = result.unwrap_or(before);
        }
        Some(self.config(&point))
    }

    /// Legal configs that differ from `config` in one axis by one step.
    pub fn neighbours(&self, config: &Config) -> Vec<Config> {
        self.moved(config, |axis, from| axis.steps(from))
    }

    /// Legal configs that differ from `config` in one axis, by whatever value.
    pub fn hamming(&self, config: &Config) -> Vec<Config> {
        self.moved(config, |axis, from| (0..axis.values().len() as u16).filter(|v| *v != from).collect())
    }

    fn moved(&self, config: &Config, to: impl Fn(&super::Axis, u16) -> Vec<u16>) -> Vec<Config> {
        let (Some(mut point), Ok(diagram)) = (self.point(config), self.diagram()) else { return Vec::new() };
        let mut near = Vec::new();
        for (i, axis) in self.axes.iter().enumerate() {
            let from = point[i];
            for value in to(axis, from) {
                point[i] = value;
                if diagram.index(&point).is_some() {
                    near.push(self.config(&point));
                }
            }
            point[i] = from;
        }
        near
    }
}
