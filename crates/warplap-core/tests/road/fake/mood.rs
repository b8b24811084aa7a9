//! The moods of a machine: simulated time comes in; how much slower everything is at that moment goes out.
//!
//! The worlds of `noise_worlds.rs`, for whole tunings: drift with a memory of 50 ms, a boost that sinks, slow spells.

/// What a machine does to whoever runs on it.
#[derive(Clone, Copy)]
pub struct World {
    pub name: &'static str,
    /// Standard deviation of a launch.
    pub noise: f64,
    /// Chance of an outlier of 5 to 100 %.
    pub outliers: f64,
    /// Standard deviation of the drift.
    pub drift: f64,
    /// Factor, mean seconds, and mean seconds between two, of slow spells.
    pub spells: Option<([f64; 2], f64, f64)>,
}

pub const WORLDS: [World; 5] = [
    World { name: "quiet", noise: 0.005, outliers: 0.005, drift: 0.0, spells: None },
    World { name: "normal", noise: 0.01, outliers: 0.01, drift: 0.01, spells: None },
    World { name: "throttle", noise: 0.01, outliers: 0.01, drift: 0.01, spells: Some(([1.08, 1.25], 0.06, 0.14)) },
    World { name: "shared", noise: 0.015, outliers: 0.03, drift: 0.015, spells: Some(([1.2, 1.9], 0.01, 0.04)) },
    World { name: "loaded", noise: 0.05, outliers: 0.15, drift: 0.03, spells: Some(([1.5, 3.0], 0.02, 0.04)) },
];

/// A machine in one world.
pub struct NoisyMachine {
    world: World,
    rng: fastrand::Rng,
    now: f64,
    drift: f64,
    /// ln of the present slow-down, and when it changes.
    spell: f64,
    until: f64,
}

impl NoisyMachine {
    pub fn new(world: World, seed: u64) -> NoisyMachine {
        let mut mood =
            NoisyMachine { world, rng: fastrand::Rng::with_seed(seed), now: 0.0, drift: 0.0, spell: 0.0, until: 0.0 };
        mood.drift = world.drift * mood.normal();
        mood
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * self.rng.f64()).cos()
    }

    fn between(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + (high - low) * self.rng.f64()
    }

    /// What a launch of so many seconds at the nominal clock takes now.
    pub fn launch(&mut self, seconds: f64) -> f64 {
        let clock = self.drift + self.spell - 0.05 * (-self.now / 0.1).exp();
        let outlier = if self.rng.f64() < self.world.outliers { self.between([1.05, 2.0]).ln() } else { 0.0 };
        let took = seconds * (clock + self.world.noise * self.normal() + outlier).exp();
        self.rest(took);
        took
    }

    /// Lets time pass.
    pub fn rest(&mut self, seconds: f64) {
        let keep = (-seconds / 0.05).exp();
        self.drift = keep * self.drift + self.world.drift * (1.0 - keep * keep).sqrt() * self.normal();
        self.now += seconds;
        let Some((factor, lasts, apart)) = self.world.spells else { return };
        while self.now >= self.until {
            self.spell = if self.spell == 0.0 { self.between(factor).ln() } else { 0.0 };
            let mean = if self.spell == 0.0 { apart } else { lasts };
            self.until -= mean * (1.0 - self.rng.f64()).ln();
        }
    }
}
