//! The lanes of a race as its stopwatch: proved kernels come in; seconds of a launch, and what it costs by the
//! objective, go out.

use std::cell::Cell;
use std::time::Instant;

use crate::device::Device;
use crate::measure::{Cost, Drawn, Lap, Meter, Stopwatch, between_ticks};
use crate::model::objective::{Objective, Spent};
use crate::prove::gate::Entrant;
use crate::prove::panics::contained;
use crate::rejection::Rejection;

/// Entrants side by side, and how many samples went well so far.
pub(crate) struct Contestants<'w, 'g, D: Device> {
    entrants: &'w mut [Entrant<'g, D>],
    taken: &'w Cell<u64>,
    device: &'w D,
    objective: Objective,
    cost: Option<Cost>,
}

impl<'w, 'g, D: Device> Contestants<'w, 'g, D> {
    pub(crate) fn new(entrants: &'w mut [Entrant<'g, D>], taken: &'w Cell<u64>, device: &'w D) -> Self {
        Contestants { entrants, taken, device, objective: Objective::default(), cost: None }
    }

    /// These lanes, raced for something else than time.
    pub(crate) fn racing_for(mut self, objective: &Objective) -> Self {
        self.objective = objective.clone();
        self
    }

    /// What one launch draws, from one tick of the device's counter to another.
    pub(crate) fn drawn(&mut self, lane: usize) -> Result<Drawn, Rejection> {
        let lap = &mut *self.entrants[lane].lap;
        let batch = lap.batch();
        between_ticks(&mut Watched { lap, device: self.device }, batch)
    }

    fn costed(&mut self, lane: usize) -> Result<f64, Rejection> {
        let drawn = if self.objective.needs_energy() { Some(self.drawn(lane)?) } else { None };
        let entrant = &mut self.entrants[lane];
        let batch = entrant.lap.batch();
        let (seconds, launches) = match drawn {
            Some(Drawn { seconds, launches, .. }) => (seconds, launches),
            None => (contained(|| entrant.lap.run())?, u64::from(batch.max(1))),
        };
        let joules = drawn.map(|d| d.joules);
        let value = self.objective.cost(&entrant.contender.candidate.config, Spent { seconds, joules })?;
        self.cost = Some(Cost { value, joules, launches });
        Ok(seconds)
    }
}

impl<D: Device> Stopwatch for Contestants<'_, '_, D> {
    fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
        let seconds = match self.objective.is_time() {
            true => contained(|| self.entrants[lane].lap.run())?,
            false => self.costed(lane)?,
        };
        self.taken.set(self.taken.get() + 1);
        Ok(seconds)
    }

    fn cost(&mut self) -> Option<Cost> {
        self.cost.take()
    }

    fn batch(&self, lane: usize) -> u32 {
        self.entrants[lane].lap.batch()
    }

    fn pause(&mut self, seconds: f64) {
        self.device.rest(seconds);
    }
}

/// A lap under the eye of its device's energy counter.
struct Watched<'l, 'g, D> {
    lap: &'l mut (dyn Lap + 'g),
    device: &'l D,
}

impl<D: Device> Meter for Watched<'_, '_, D> {
    fn joules(&self) -> Option<f64> {
        self.device.joules()
    }

    fn now(&self) -> f64 {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_secs_f64()
    }

    fn launch(&mut self) -> Result<f64, Rejection> {
        contained(|| self.lap.back_to_back())
    }
}
