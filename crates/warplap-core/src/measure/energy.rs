//! Energy of a launch: a kernel is launched from one tick of the device's energy counter to another, so that what was
//! drawn between them and how often it was launched belong together.

use crate::rejection::Rejection;

/// Seconds between the two ticks at least: counters move every 20 to 100 ms.
pub(crate) const LEAST: f64 = 0.3;
/// Seconds of launches between two looks at the counter: a look takes a while itself, and the device idles meanwhile.
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

/// Launches until the counter has ticked, and then until it ticks again after [`LEAST`] seconds.
pub(crate) fn between_ticks(meter: &mut dyn Meter, batch: u32) -> Result<Drawn, Rejection> {
    let still = |why: &str| Rejection::LaunchFailed { reason: format!("the device's energy counter {why}") };
    let read = |meter: &dyn Meter| meter.joules().ok_or_else(|| still("is not to be read"));
    let mut begun: Option<(f64, f64, u64)> = None;
    let (mut last, started) = (read(meter)?, meter.now());
    let (mut launches, mut times) = (0, Vec::new());
    loop {
        let looked = meter.now();
        loop {
            times.push(meter.launch()?);
            launches += u64::from(batch.max(1));
            if meter.now() - looked >= LOOK {
                break;
            }
        }
        let (joules, now) = (read(meter)?, meter.now());
        if joules != last {
            last = joules;
            match begun {
                None => begun = Some((joules, now, launches)),
                Some((before, at, count)) if now - at >= LEAST => {
                    times.sort_by(f64::total_cmp);
                    let seconds = times[times.len() / 2];
                    return Ok(Drawn { seconds, joules: (joules - before) / (launches - count) as f64, launches });
                }
                Some(_) => {}
            }
        }
        if now - started > MOST {
            return Err(still("does not move"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that draws `watts`, whose counter moves every `tick` seconds.
    struct Fake {
        time: f64,
        watts: f64,
        tick: f64,
        launch: f64,
    }

    impl Meter for Fake {
        fn joules(&self) -> Option<f64> {
            (self.watts > 0.0).then(|| 5.0 + self.watts * (self.time / self.tick).floor() * self.tick)
        }
        fn now(&self) -> f64 {
            self.time
        }
        fn launch(&mut self) -> Result<f64, Rejection> {
            self.time += self.launch * 4.0;
            Ok(self.launch)
        }
    }

    #[test]
    fn a_coarse_counter_gives_the_energy_of_a_launch() {
        for (tick, launch) in [(0.02, 60e-6), (0.1, 60e-6), (0.1, 7e-3), (0.1, 30e-3)] {
            let mut fake = Fake { time: 0.013, watts: 500.0, tick, launch };
            let drawn = between_ticks(&mut fake, 4).unwrap();
            let off = drawn.joules / (500.0 * launch) - 1.0;
            // A look comes up to 2 ms or one batch after a tick.
            let allowed = 2.0 * (2e-3f64).max(4.0 * launch) / LEAST;
            assert!(off.abs() < allowed, "{tick} {launch}: {off}");
            assert_eq!(drawn.seconds, launch);
            assert!(fake.time < 1.0, "{}", fake.time);
        }
    }

    #[test]
    fn a_counter_that_stands_still_or_is_not_there_is_given_up() {
        let mut still = Fake { time: 0.0, watts: 1.0, tick: 1e9, launch: 1e-3 };
        assert!(between_ticks(&mut still, 1).unwrap_err().to_string().contains("does not move"));
        let mut none = Fake { time: 0.0, watts: 0.0, tick: 1.0, launch: 1e-3 };
        assert!(between_ticks(&mut none, 1).unwrap_err().to_string().contains("is not to be read"));
    }
}
