//! The Objective: what a race is run for. What one launch spent comes in; a cost goes out, the lower the better.
//!
//! It is the launch's time unless somebody says otherwise: its energy, or anything made of both.

use std::fmt;
use std::sync::Arc;

use crate::rejection::Rejection;
use crate::space::Config;

/// What one launch spent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    /// Its seconds.
    pub seconds: f64,
    /// Its joules, where they were measured.
    pub joules: Option<f64>,
}

/// What a race is run for: lowest time, or the lowest or highest value of something else.
#[derive(Clone, Default)]
pub struct Objective(Option<Arc<Goal>>);

type CostValue = Box<dyn Fn(&Config, Spent) -> Option<f64> + Send + Sync>;

struct Goal {
    name: String,
    needs_energy: bool,
    highest: bool,
    value: CostValue,
}

impl Objective {
    /// The lowest energy of a launch, in joules.
    pub fn energy() -> Self {
        Objective::own("energy", true, false, |_, spent| spent.joules)
    }

    /// The lowest value of something of one's own, or the `highest`. It must be above 0; where it `needs_energy`, every
    /// sample lasts long enough for the device's energy counter.
    pub fn own(
        name: &str,
        needs_energy: bool,
        highest: bool,
        value: impl Fn(&Config, Spent) -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        Objective(Some(Arc::new(Goal { name: name.into(), needs_energy, highest, value: Box::new(value) })))
    }

    /// Whether it is the time of a launch.
    pub fn is_time(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the device must tell what a launch draws.
    pub fn needs_energy(&self) -> bool {
        self.0.as_ref().is_some_and(|g| g.needs_energy)
    }

    /// Whether the highest value wins.
    pub fn is_highest(&self) -> bool {
        self.0.as_ref().is_some_and(|g| g.highest)
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("time", |g| &g.name)
    }

    /// How a key names it: by its name, or where that is an expression by a hash of it.
    pub fn word(&self) -> String {
        let name = self.name();
        match !self.is_highest() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            true => name.to_string(),
            false => blake3::hash(format!("{self:?}").as_bytes()).to_hex()[..16].to_string(),
        }
    }

    /// The cost of a launch: the seconds of it, the value, or one over the value where the highest wins.
    pub fn cost(&self, config: &Config, spent: Spent) -> Result<f64, Rejection> {
        let Some(goal) = &self.0 else { return Ok(spent.seconds) };
        let value = (goal.value)(config, spent);
        match value.filter(|v| v.is_finite() && *v > 0.0) {
            Some(value) => Ok(if goal.highest { 1.0 / value } else { value }),
            None => {
                let said = value.map_or_else(|| "nothing".to_string(), |v| v.to_string());
                let reason = format!("the objective {} gives {said}: expected a number above 0", goal.name);
                Err(Rejection::Impossible { reason })
            }
        }
    }

    /// The value behind a cost.
    pub fn value(&self, cost: f64) -> f64 {
        if self.is_highest() { 1.0 / cost } else { cost }
    }
}

impl fmt::Debug for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.is_highest() { "highest" } else { "lowest" }, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_the_lower_the_better_whatever_the_goal() {
        let spent = |seconds, joules| Spent { seconds, joules: Some(joules) };
        let cost = |o: &Objective, s| o.cost(&Config::new(), s).unwrap();
        assert_eq!(cost(&Objective::default(), spent(2.0, 9.0)), 2.0);
        assert_eq!(cost(&Objective::energy(), spent(2.0, 9.0)), 9.0);
        let rate = Objective::own("rate", false, true, |_, s| Some(8.0 / s.seconds));
        assert!(cost(&rate, spent(1.0, 1.0)) < cost(&rate, spent(2.0, 1.0)));
        assert_eq!(rate.value(cost(&rate, spent(2.0, 1.0))), 4.0);
        assert_eq!(format!("{rate:?} {:?}", Objective::energy()), "highest rate lowest energy");
    }

    #[test]
    fn what_gives_no_number_above_zero_is_rejected_by_name() {
        let nothing = Spent { seconds: 1.0, joules: None };
        let said = Objective::energy().cost(&Config::new(), nothing).unwrap_err().to_string();
        assert!(said.contains("the objective energy gives nothing: expected a number above 0"), "{said}");
        let below = Objective::own("t - 2", false, false, |_, s| Some(s.seconds - 2.0));
        assert!(below.cost(&Config::new(), nothing).unwrap_err().to_string().contains("gives -1"));
    }
}
