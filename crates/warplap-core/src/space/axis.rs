//! An Axis: one tunable with its legal values. It owns its moves, so that a Search stays short.

use super::config::Value;

/// One tunable: a name and its legal values in their natural order. The first value is the default.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    name: String,
    values: Vec<Value>,
    default: usize,
    ordered: bool,
}

impl Axis {
    /// Numbers in their natural order; the first given is the default.
    pub fn ints(name: &str, values: impl IntoIterator<Item = i64>) -> Self {
        let given: Vec<i64> = values.into_iter().collect();
        let mut sorted = given.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let default = given.first().and_then(|g| sorted.iter().position(|v| v == g)).unwrap_or(0);
        Axis { name: name.into(), values: sorted.into_iter().map(Value::Int).collect(), default, ordered: true }
    }

    /// Powers of two from `low` to `high`, both kept when they are powers themselves.
    pub fn powers_of_two(name: &str, low: i64, high: i64) -> Self {
        Self::ints(name, (0..62).map(|e| 1i64 << e).filter(|v| (low..=high).contains(v)))
    }

    /// Named choices without an order.
    pub fn choices(name: &str, values: &[&str]) -> Self {
        let values = values.iter().map(|v| Value::from(*v)).collect();
        Axis { name: name.into(), values, default: 0, ordered: false }
    }

    /// A switch; off is the default.
    pub fn switch(name: &str) -> Self {
        let values = vec![Value::Bool(false), Value::Bool(true)];
        Axis { name: name.into(), values, default: 0, ordered: false }
    }

    /// The name it carries in a Config.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its legal values in their natural order.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The value a user gets without tuning.
    pub fn default_value(&self) -> Option<&Value> {
        self.values.get(self.default)
    }

    /// Move: any value, each as likely as the other.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<&Value> {
        (!self.values.is_empty()).then(|| &self.values[rng.usize(..self.values.len())])
    }

    /// Move: the values one step away (an unordered axis is one step from each other value).
    pub fn neighbours(&self, from: &Value) -> Vec<&Value> {
        let Some(at) = self.values.iter().position(|v| v == from) else {
            return Vec::new();
        };
        let adjacent = |i: usize| !self.ordered || i.abs_diff(at) == 1;
        self.values.iter().enumerate().filter(|(i, _)| *i != at && adjacent(*i)).map(|(_, v)| v).collect()
    }

    /// Move: another value than `from`, near ones more likely on an ordered axis.
    pub fn mutate(&self, from: &Value, rng: &mut fastrand::Rng) -> Option<&Value> {
        let near = self.neighbours(from);
        if !near.is_empty() && rng.f64() < 0.7 {
            return Some(near[rng.usize(..near.len())]);
        }
        let others: Vec<&Value> = self.values.iter().filter(|v| *v != from).collect();
        (!others.is_empty()).then(|| others[rng.usize(..others.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordered_axis_moves_by_one_step_and_keeps_its_default() {
        let axis = Axis::ints("tile", [32, 8, 16, 64]);
        assert_eq!(axis.default_value(), Some(&Value::Int(32)));
        assert_eq!(axis.neighbours(&Value::Int(16)), [&Value::Int(8), &Value::Int(32)]);
        assert_eq!(axis.neighbours(&Value::Int(64)), [&Value::Int(32)]);
        assert!(axis.neighbours(&Value::Int(7)).is_empty());
    }

    #[test]
    fn mutation_always_changes_the_value() {
        let mut rng = fastrand::Rng::with_seed(1);
        let axis = Axis::powers_of_two("tile", 3, 64);
        for _ in 0..100 {
            assert_ne!(axis.mutate(&Value::Int(16), &mut rng), Some(&Value::Int(16)));
        }
        assert_eq!(Axis::ints("one", [1]).mutate(&Value::Int(1), &mut rng), None);
    }
}
