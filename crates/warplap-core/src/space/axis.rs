//! An Axis: one tunable with its legal values. It owns its moves, so that a Search stays short.

use crate::records::config::Value;

/// How an axis' values lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Numbers: one step is the next larger or smaller one.
    Ordered,
    /// Choices: each is one step from each other.
    Unordered,
    /// Orders of things: one step swaps two neighbours.
    Permuted,
}

/// One tunable: a name and its legal values in their natural order. The first value given is the default.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    name: String,
    values: Vec<Value>,
    default: usize,
    shape: Shape,
}

/// Between the things of a permutation: `i_k_j`.
const BETWEEN: char = '_';

impl Axis {
    /// Numbers in their natural order; the first given is the default.
    pub fn ints(name: &str, values: impl IntoIterator<Item = i64>) -> Self {
        Self::values_of(name, values.into_iter().map(Value::Int))
    }

    /// Powers of two from `low` to `high`, both kept when they are powers themselves.
    pub fn powers_of_two(name: &str, low: i64, high: i64) -> Self {
        Self::ints(name, (0..62).map(|e| 1i64 << e).filter(|v| (low..=high).contains(v)))
    }

    /// Named choices without an order.
    pub fn choices(name: &str, values: &[&str]) -> Self {
        Self::values_of(name, values.iter().map(|v| Value::from(*v)))
    }

    /// A switch; off is the default.
    pub fn switch(name: &str) -> Self {
        let values = vec![Value::Bool(false), Value::Bool(true)];
        Axis { name: name.into(), values, default: 0, shape: Shape::Unordered }
    }

    /// Every order of these things, written `i_j_k`; the order given is the default. At most eight things.
    pub fn permutations(name: &str, things: &[&str]) -> Self {
        let mut orders: Vec<Vec<&str>> = vec![Vec::new()];
        for thing in things.iter().take(8) {
            let put = |o: &Vec<&'_ str>, at: usize| {
                let mut longer = o.clone();
                longer.insert(at, thing);
                longer.join(" ")
            };
            let longer: Vec<String> =
                orders.iter().flat_map(|o| (0..=o.len()).rev().map(move |at| put(o, at))).collect();
            // Names are borrowed again from the things themselves.
            let again = |text: &String| {
                text.split(' ').filter_map(|n| things.iter().find(|t| **t == n).copied()).collect::<Vec<&str>>()
            };
            orders = longer.iter().map(again).collect();
        }
        let text = |o: &Vec<&str>| Value::Text(o.join(&BETWEEN.to_string()));
        Axis { name: name.into(), values: orders.iter().map(text).collect(), default: 0, shape: Shape::Permuted }
    }

    /// Any values. Numbers alone are brought into their order; everything else stays as given and has none. A value
    /// that is there twice counts once.
    pub fn values_of(name: &str, values: impl IntoIterator<Item = Value>) -> Self {
        let mut inputs: Vec<Value> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        inputs.extend(values.into_iter().filter(|v| seen.insert(v.clone())));
        let number = |v: &Value| match v {
            Value::Int(i) => Some(*i as f64),
            Value::Float(x) => Some(x.0),
            _ => None,
        };
        let ordered = inputs.iter().all(|v| number(v).is_some());
        let first = inputs.first().cloned();
        if ordered {
            inputs
                .sort_by(|a, b| number(a).partial_cmp(&number(b)).unwrap_or(std::cmp::Ordering::Equal).then(a.cmp(b)));
        }
        let default = first.and_then(|f| inputs.iter().position(|v| *v == f)).unwrap_or(0);
        let shape = if ordered { Shape::Ordered } else { Shape::Unordered };
        Axis { name: name.into(), values: inputs, default, shape }
    }

    /// The name it carries in a Config.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its legal values in their natural order.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Whether its values are numbers with an order.
    pub fn is_ordered(&self) -> bool {
        self.shape == Shape::Ordered
    }

    /// What expressions take its values for.
    pub fn kind(&self) -> super::ExprKind {
        match self.values.first() {
            Some(Value::Text(_)) => super::ExprKind::Text,
            _ => super::ExprKind::Number,
        }
    }

    /// The value a user gets without tuning.
    pub fn default_value(&self) -> Option<&Value> {
        self.values.get(self.default)
    }

    pub(super) fn default_number(&self) -> u16 {
        self.default as u16
    }

    /// The number of a value.
    pub fn number(&self, value: &Value) -> Option<u16> {
        let at = match self.shape {
            // Whole numbers in order, the usual case: no walk over a thousand values.
            Shape::Ordered => match self.values.binary_search(value) {
                Ok(at) => Some(at),
                Err(_) => self.values.iter().position(|v| v == value),
            },
            _ => self.values.iter().position(|v| v == value),
        };
        at.and_then(|at| u16::try_from(at).ok())
    }

    /// Move: the numbers of the values one step away.
    pub fn steps(&self, from: u16) -> Vec<u16> {
        let near = |to: u16| match self.shape {
            Shape::Ordered => to.abs_diff(from) == 1,
            Shape::Unordered => to != from,
            Shape::Permuted => self.is_swap(from, to),
        };
        (0..self.values.len() as u16).filter(|to| near(*to)).collect()
    }

    /// Whether two permutations differ by one swap of neighbours.
    fn is_swap(&self, from: u16, to: u16) -> bool {
        let (Value::Text(a), Value::Text(b)) = (&self.values[usize::from(from)], &self.values[usize::from(to)]) else {
            return false;
        };
        let (a, b): (Vec<&str>, Vec<&str>) = (a.split(BETWEEN).collect(), b.split(BETWEEN).collect());
        let other: Vec<usize> = (0..a.len().min(b.len())).filter(|i| a[*i] != b[*i]).collect();
        matches!(other[..], [i, j] if j == i + 1)
    }

    /// Numbers of values by their distance from one that may not be among them: the equal one first, then whole numbers
    /// by their ratio, and of those as near the one with the smaller difference.
    pub(super) fn nearest(&self, to: &Value) -> Vec<u16> {
        let far = |value: &Value| match (value, to) {
            _ if value == to => Some((0.0, 0)),
            (Value::Int(value), Value::Int(to)) => {
                let ratio = (*value).max(1) as f64 / (*to).max(1) as f64;
                Some((ratio.ln().abs(), value.abs_diff(*to)))
            }
            _ => None,
        };
        let numbered = |(at, value): (usize, &Value)| far(value).map(|far| (far, at as u16));
        let mut all: Vec<((f64, u64), u16)> = self.values().iter().enumerate().filter_map(numbered).collect();
        all.sort_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        all.into_iter().map(|(_, at)| at).collect()
    }

    /// Move: any value, each as likely as the other.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<&Value> {
        (!self.values.is_empty()).then(|| &self.values[rng.usize(..self.values.len())])
    }

    /// Move: the values one step away (an unordered axis is one step from each other value).
    pub fn neighbours(&self, from: &Value) -> Vec<&Value> {
        let Some(at) = self.number(from) else { return Vec::new() };
        self.steps(at).into_iter().map(|i| &self.values[usize::from(i)]).collect()
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
