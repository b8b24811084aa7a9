//! Energy of a launch: a kernel is launched from one tick of the device's energy counter to another, so that what was
//! drawn between them and how often it was launched belong together.

use crate::rejection::Rejection;

/// Seconds between the two ticks at least: counters move every 20 to 100 ms.
pub(crate) const LEAST: f64 = 0.3;
/// Seconds of launches between two looks at the counter while it is waited for: a look takes a while itself, and the
/// device idles meanwhile.
const LOOK: f64 = 2e-3;
/// Seconds after which a counter that does not move is given up.
const MOST: f64 = 3.0;

/// What launches between two ticks drew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drawn {
    /// Median seconds of one launch on the device's clock.
    pub(crate) seconds: f64,
    /// Joules of one launch, what the device draws between launches included.
    pub(crate) joules: f64,
    /// Launches in all.
    pub(crate) launches: u64,
}

/// A device's counter, a clock on the wall, and launches to be watched by both.
pub(crate) trait Meter {
    /// Joules drawn since some moment in the past.
    fn joules(&self) -> Option<f64>;
    /// Seconds since some moment in the past.
    fn now(&self) -> f64;
    /// Launches a batch and gives the seconds of one launch.
    fn launch(&mut self) -> Result<f64, Rejection>;
}

/// Launches until the counter has ticked, for [`LEAST`] seconds without a look at it, and then until it ticks again.
pub(crate) fn between_ticks(meter: &mut dyn Meter, batch: u32) -> Result<Drawn, Rejection> {
    let mut watch = Watch { meter, batch: u64::from(batch.max(1)), launches: 0, times: Vec::new() };
    let (before, from) = (watch.tick()?, watch.launches);
    watch.launch_for(LEAST)?;
    let (after, to) = (watch.tick()?, watch.launches);
    watch.times.sort_by(f64::total_cmp);
    let seconds = watch.times[watch.times.len() / 2];
    Ok(Drawn { seconds, joules: (after - before) / (to - from) as f64, launches: to })
}

/// A meter, and what was launched under its eye so far.
struct Watch<'m> {
    meter: &'m mut dyn Meter,
    batch: u64,
    launches: u64,
    times: Vec<f64>,
}

impl Watch<'_> {
    fn launch_for(&mut self, seconds: f64) -> Result<(), Rejection> {
        let started = self.meter.now();
        loop {
            self.times.push(self.meter.launch()?);
            self.launches += self.batch;
            if self.meter.now() - started >= seconds {
                return Ok(());
            }
        }
    }

    /// Launches until the counter moves: joules right after that.
    fn tick(&mut self) -> Result<f64, Rejection> {
        let failed = |why: &str| Rejection::LaunchFailed { reason: format!("the device's energy counter {why}") };
        let read = |meter: &dyn Meter| meter.joules().ok_or_else(|| failed("is not to be read"));
        let (last, started) = (read(self.meter)?, self.meter.now());
        while self.meter.now() - started < MOST {
            self.launch_for(LOOK)?;
            let joules = read(self.meter)?;
            if joules != last {
                return Ok(joules);
            }
        }
        Err(failed("does not move"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A device that draws `watts` while it works and a fifth of it during a look at its counter, which moves every
    /// `tick` seconds.
    struct Fake {
        time: Cell<f64>,
        drawn: Cell<f64>,
        shown: Cell<f64>,
        watts: f64,
        tick: f64,
        launch: f64,
    }

    impl Fake {
        fn new(watts: f64, tick: f64, launch: f64) -> Self {
            let (time, drawn, shown) = (Cell::new(0.013), Cell::new(5.0), Cell::new(5.0));
            Fake { time, drawn, shown, watts, tick, launch }
        }

        fn pass(&self, seconds: f64, watts: f64) {
            let (from, to) = (self.time.get(), self.time.get() + seconds);
            self.time.set(to);
            self.drawn.set(self.drawn.get() + watts * seconds);
            let since = to - (to / self.tick).floor() * self.tick;
            if since < to - from {
                self.shown.set(self.drawn.get() - watts * since);
            }
        }
    }

    impl Meter for Fake {
        fn joules(&self) -> Option<f64> {
            self.pass(1e-3, self.watts / 5.0);
            (self.watts > 0.0).then(|| self.shown.get())
        }
        fn now(&self) -> f64 {
            self.time.get()
        }
        fn launch(&mut self) -> Result<f64, Rejection> {
            self.pass(self.launch * 4.0, self.watts);
            Ok(self.launch)
        }
    }

    #[test]
    fn a_coarse_counter_gives_the_energy_of_a_launch() {
        for (tick, launch) in [(0.02, 60e-6), (0.1, 60e-6), (0.1, 7e-3), (0.1, 30e-3)] {
            let mut fake = Fake::new(500.0, tick, launch);
            let drawn = between_ticks(&mut fake, 4).unwrap();
            let off = drawn.joules / (500.0 * launch) - 1.0;
            // A look comes up to 3 ms or one batch after a tick, and costs a fifth of a millisecond's joules.
            let allowed = 2.0 * (3e-3f64).max(4.0 * launch) / LEAST + tick / LOOK * 2e-4 / LEAST;
            assert!(off.abs() < allowed, "{tick} {launch}: {off}");
            assert_eq!(drawn.seconds, launch);
            assert!(fake.time.get() < 1.0, "{}", fake.time.get());
        }
    }

    #[test]
    fn a_counter_that_stands_still_or_is_not_there_is_given_up() {
        let mut still = Fake::new(1.0, 1e9, 1e-3);
        assert!(between_ticks(&mut still, 1).unwrap_err().to_string().contains("does not move"));
        let mut none = Fake::new(0.0, 1.0, 1e-3);
        assert!(between_ticks(&mut none, 1).unwrap_err().to_string().contains("is not to be read"));
    }
}
