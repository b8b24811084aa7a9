//! Bench: one named candidate comes in; it is proved right and timed alone, and its Measurement goes out. Nobody races
//! it and nothing is kept.

use std::cell::Cell;
use std::time::Instant;

use crate::candidate::Candidate;
use crate::candidates::variant::Fit;
use crate::device::Device;
use crate::engine::{TuningEngine, named};
use crate::error::Error;
use crate::measure::contestants::Contestants;
use crate::measure::{self, Measurement, Stopwatch};
use crate::model::erased::ErasedProblem;
use crate::model::roofline::{IMPOSSIBLE_BELOW, Work};
use crate::prove::gate::Gate;
use crate::rejection::Rejection;
use crate::space::{Axis, Config, Space};

/// A candidate that was proved right and timed alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Benched {
    /// Who.
    pub candidate: Candidate,
    /// The largest share of the allowed error it took.
    pub error: f64,
    /// Its times.
    pub measurement: Measurement,
    /// The useful work, for rates.
    pub work: Work,
    /// The roofline floor in microseconds, where ceilings are known.
    pub floor_us: Option<f64>,
    /// Joules of one launch, pauses between launches included, where the device tells and sampling took long enough.
    pub joules: Option<f64>,
}

/// Seconds of sampling from which energy is looked at too: that takes another third of a second.
const ENERGY_SECONDS: f64 = 0.25;

impl<D: Device> TuningEngine<D> {
    /// Verifies one variant at one config on exactly this problem, then takes `samples` samples on the device's clock.
    /// Axes that `config` leaves out are at their defaults. A candidate that fails is a Rejection; an unknown name is
    /// an Error.
    pub(crate) fn bench(
        &self,
        problem: &dyn ErasedProblem<D>,
        variant: &str,
        config: Option<&Config>,
        samples: u32,
    ) -> Result<Result<Benched, Rejection>, Error> {
        let (device, settings) = (&*self.device, &self.settings);
        let result = named(problem, variant)?;
        if let Fit::Aside(reason) = result.fit(device) {
            return Ok(Err(Rejection::DoesNotBuild { reason: format!("{variant} stands aside: {reason}") }));
        }
        let config = legal(&result.space(device), config).map_err(Error::Unknown)?;
        let candidate = Candidate { variant: variant.into(), config, source: result.source() };

        device.get_ready(&self.store, f64::INFINITY);
        let floor = self.floor(problem);
        let gate = Gate::open(problem, device, settings)?;
        let entrant = match gate.prove(&candidate, false) {
            Ok(entrant) => entrant,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let error = entrant.contender.error;
        let mut lane = [entrant];
        let taken = Cell::new(0);
        let mut contestants = Contestants::new(&mut lane, &taken, device);
        let mut seconds = Vec::new();
        let started = Instant::now();
        for _ in 0..samples.max(1) {
            if settings.stop.said() && !seconds.is_empty() {
                break;
            }
            match contestants.sample(0) {
                Ok(sample) => seconds.push(sample),
                Err(rejection) => return Ok(Err(rejection)),
            }
        }
        // Whoever asks for long sampling wants to know; from tick to tick the counter tells exactly.
        let long = started.elapsed().as_secs_f64() >= ENERGY_SECONDS && device.joules().is_some();
        let joules = if long { contestants.drawn(0).ok().map(|drawn| drawn.joules) } else { None };
        let measurement = measure::summarize(&seconds, contestants.batch(0));
        if let Some(least) = self.least(problem).filter(|f| measurement.median_us * 1e-6 < f * IMPOSSIBLE_BELOW) {
            let reason = format!("{:.3} us is under the floor of {:.3} us", measurement.median_us, least * 1e6);
            return Ok(Err(Rejection::Impossible { reason }));
        }
        let (work, floor_us) = (problem.work(), floor.map(|f| f * 1e6));
        Ok(Ok(Benched { candidate, error, measurement, work, floor_us, joules }))
    }
}

/// A legal config: what was asked for, and defaults for the axes that were left out. Names the axis that is wrong.
pub fn legal(space: &Space, asked: Option<&Config>) -> Result<Config, String> {
    let mut config = space.default_config().ok_or("the variant's rules leave no legal config for this problem")?;
    let Some(asked) = asked else { return Ok(config) };
    // Derived values follow from the axes, whatever is said of them.
    let derived = |name: &str| space.derived().iter().any(|(d, _)| d == name);
    for (name, value) in asked.0.iter().filter(|(name, _)| !derived(name)) {
        let Some(axis) = space.axes().iter().find(|a| a.name() == name) else {
            let known: Vec<&str> = space.axes().iter().map(|a| a.name()).collect();
            let known = if known.is_empty() { "no axis at all".into() } else { format!("one of {}", known.join(", ")) };
            return Err(format!("unknown axis '{name}': expected {known}"));
        };
        if !axis.values().contains(value) {
            let values: Vec<String> = axis.values().iter().map(ToString::to_string).collect();
            return Err(format!("axis '{name}' is '{value}': expected one of {}", values.join(", ")));
        }
        config.0.insert(name.clone(), value.clone());
    }
    let number = |axis: &Axis| axis.number(config.get(axis.name())?);
    if let Some(point) = space.axes().iter().map(number).collect::<Option<Vec<u16>>>() {
        config = space.config(&point);
    }
    match space.rules().iter().find(|rule| !rule.holds(&config)) {
        Some(rule) => {
            Err(format!("the config {config} breaks the rule '{}'", crate::io::sanitize_text::brief(&rule.to_string())))
        }
        None => Ok(config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Rule;

    #[test]
    fn derived_values_follow_from_the_axes_whatever_is_said_of_them() {
        let space = Space::single().axis(Axis::ints("x", [1, 2])).axis(Axis::ints("y", [3, 5]));
        let space = space.derive("area", "x * y").unwrap().constrain("area < 10").unwrap();
        let ask = |text: &str| legal(&space, Some(&Config::parse(text).unwrap()));
        assert_eq!(ask("x=2").unwrap().int("area"), Some(6));
        assert_eq!(ask("area=6,x=2,y=3").unwrap(), ask("x=2").unwrap());
        assert!(ask("x=2,y=5").unwrap_err().contains("area < 10"));
    }

    #[test]
    fn a_config_that_is_not_legal_names_the_axis() {
        let space = Space::single().axis(Axis::ints("mc", [8, 16])).axis(Axis::switch("pack")).rule(Rule::on(
            "mc = 8 or no pack",
            &["mc", "pack"],
            |c| c.int("mc") == Some(8) || c.flag("pack") == Some(false),
        ));
        let ask = |text: &str| legal(&space, Some(&Config::parse(text).unwrap()));
        assert_eq!(ask("mc=8").unwrap().int("mc"), Some(8));
        assert_eq!(legal(&space, None).unwrap(), space.default_config().unwrap());
        assert!(ask("nc=8").unwrap_err().contains("unknown axis 'nc': expected one of mc, pack"));
        assert!(ask("mc=9").unwrap_err().contains("axis 'mc' is '9': expected one of 8, 16"));
        assert!(ask("mc=16,pack=true").unwrap_err().contains("mc = 8 or no pack"));
        assert!(legal(&Space::single(), Some(&Config::new().with("x", 1))).unwrap_err().contains("no axis at all"));
    }
}
