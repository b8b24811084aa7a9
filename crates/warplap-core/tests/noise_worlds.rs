//! The race in five noise worlds: how often the pick is within 1 % of the true best, and at what price.
//!
//! A world is a fake device with simulated time. Its clock is a model, written down before the race was first run in
//! it and not changed since. All worlds share:
//!
//! - `K` candidates: the best takes 1 ms, each other 1 + 2.5 u² ms with u uniform (a fifth within 10 %, one in sixteen
//!   within 1 %, mean 1.8 ms);
//! - lognormal noise per launch, and one-sided outliers of +5 % to +100 % with a small chance;
//! - a clock whose logarithm wanders (an AR(1) drift with a memory of 50 ms) and, after the start, sinks from a 5 %
//!   boost with a time constant of 100 ms;
//! - slow spells of a random factor that come and go: throttle steps (mean 60 ms, every 200 ms or so) or the bursts of
//!   another tenant (mean 10 ms, every 50 ms or so). They may strike at any moment, within a round too.
//!
//! `WARPLAP_LONG=1 cargo test -p warplap-core --test noise_worlds -- --nocapture` runs thousands of trials.
//!
//! The truth is the time at the nominal clock without tenants: the state the device is in most of the time.
#![allow(clippy::print_stdout)]

use warplap_core::candidate::{Candidate, SourceHash};
use warplap_core::measure::{Race, RacePlan, Stopwatch, race};
use warplap_core::rejection::Rejection;
use warplap_core::space::Config;
use warplap_core::verdict::{Contender, Verdict, decide};

/// The model of one world.
#[derive(Clone, Copy)]
struct World {
    name: &'static str,
    /// Range of the lognormal sigma of a candidate.
    noise: [f64; 2],
    /// Range of a candidate's chance of an outlier.
    outliers: [f64; 2],
    /// Standard deviation of the drift.
    drift: f64,
    /// Boost above the nominal clock at the start.
    boost: f64,
    /// Slow spells, if any.
    spells: Option<Spells>,
    /// Range of how far a candidate follows the clock: 1 is bound by arithmetic, less is bound by memory.
    reaction: [f64; 2],
}

/// Spells during which everything is slower by a factor.
#[derive(Clone, Copy)]
struct Spells {
    factor: [f64; 2],
    /// Mean seconds of a spell, and between two.
    mean: [f64; 2],
}

const THROTTLE: Option<Spells> = Some(Spells { factor: [1.08, 1.25], mean: [0.060, 0.140] });
const TENANT: Option<Spells> = Some(Spells { factor: [1.2, 1.9], mean: [0.010, 0.040] });

const WORLDS: [World; 5] = [
    // A machine of one's own with locked clocks.
    World {
        name: "quiet",
        noise: [0.005; 2],
        outliers: [0.005; 2],
        drift: 0.0,
        boost: 0.0,
        spells: None,
        reaction: [1.0; 2],
    },
    // A machine of one's own: clocks boost, sink and wander.
    World {
        name: "normal",
        noise: [0.01; 2],
        outliers: [0.01; 2],
        drift: 0.01,
        boost: 0.05,
        spells: None,
        reaction: [1.0; 2],
    },
    // Power or heat makes the clock step down and up.
    World {
        name: "throttle",
        noise: [0.01; 2],
        outliers: [0.01; 2],
        drift: 0.01,
        boost: 0.05,
        spells: THROTTLE,
        reaction: [1.0; 2],
    },
    // The same, but candidates differ in noise and follow the clock 30 to 100 %: what the clock does no longer cancels.
    World {
        name: "mixed",
        noise: [0.005, 0.015],
        outliers: [0.005, 0.03],
        drift: 0.015,
        boost: 0.05,
        spells: THROTTLE,
        reaction: [0.3, 1.0],
    },
    // Another tenant computes in bursts.
    World {
        name: "shared",
        noise: [0.015; 2],
        outliers: [0.03; 2],
        drift: 0.015,
        boost: 0.05,
        spells: TENANT,
        reaction: [1.0; 2],
    },
];

/// A fake device in one world at one moment.
struct Device {
    world: World,
    rng: fastrand::Rng,
    /// True ln seconds, noise, chance of an outlier and reaction of each candidate.
    contestants: Vec<[f64; 4]>,
    now: f64,
    drift: f64,
    /// ln of the present slow-down, and when it changes.
    spell: f64,
    until: f64,
}

fn normal(rng: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

fn between(rng: &mut fastrand::Rng, [low, high]: [f64; 2]) -> f64 {
    low + (high - low) * rng.f64()
}

impl Device {
    fn new(world: World, candidates: usize, seed: u64) -> Device {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x005e_ed0f_c10c);
        let best = rng.usize(..candidates);
        let contestants = (0..candidates)
            .map(|i| {
                let slower = if i == best { 0.0 } else { 2.5 * rng.f64().powi(2) };
                let noise = between(&mut rng, world.noise);
                let outliers = between(&mut rng, world.outliers);
                [(1e-3 * (1.0 + slower)).ln(), noise, outliers, between(&mut rng, world.reaction)]
            })
            .collect();
        let drift = world.drift * normal(&mut rng);
        let mut device = Device { world, rng, contestants, now: 0.0, drift, spell: 0.0, until: 0.0 };
        if let Some(spells) = world.spells {
            // Starts within a spell as often as any moment does.
            if device.rng.f64() < spells.mean[0] / (spells.mean[0] + spells.mean[1]) {
                device.spell = between(&mut device.rng, spells.factor).ln();
            }
            device.until = device.lasts(spells);
        }
        device
    }

    fn lasts(&mut self, spells: Spells) -> f64 {
        let mean = spells.mean[usize::from(self.spell == 0.0)];
        self.now - mean * (1.0 - self.rng.f64()).ln()
    }

    /// How much slower the pick truly is than the best.
    fn loss(&self, pick: usize) -> f64 {
        let best = self.contestants.iter().map(|l| l[0]).fold(f64::INFINITY, f64::min);
        (self.contestants[pick][0] - best).exp_m1()
    }

    fn advance(&mut self, seconds: f64) {
        let keep = (-seconds / 0.050).exp();
        self.drift = keep * self.drift + self.world.drift * (1.0 - keep * keep).sqrt() * normal(&mut self.rng);
        self.now += seconds;
        if let Some(spells) = self.world.spells {
            while self.now >= self.until {
                let at = std::mem::replace(&mut self.now, self.until);
                self.spell = if self.spell == 0.0 { between(&mut self.rng, spells.factor).ln() } else { 0.0 };
                self.until = self.lasts(spells);
                self.now = at;
            }
        }
    }
}

impl Stopwatch for Device {
    fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
        let [time, noise, outliers, reaction] = self.contestants[lane];
        let clock = self.drift + self.spell - self.world.boost * (-self.now / 0.100).exp();
        let outlier = if self.rng.f64() < outliers { between(&mut self.rng, [1.05, 2.0]).ln() } else { 0.0 };
        let seconds = (time + reaction * clock + noise * normal(&mut self.rng) + outlier).exp();
        self.advance(seconds);
        Ok(seconds)
    }

    fn pause(&mut self, seconds: f64) {
        self.advance(seconds);
    }
}

/// The score of many races in one world: the share of leaders within 1 % of the best, that of decided winners, and
/// launches per candidate.
struct Score {
    leaders: f64,
    winners: f64,
    launches: f64,
}

fn run(world: World, candidates: usize, seed: u64) -> (Race, Device) {
    let mut device = Device::new(world, candidates, seed);
    let race = race(candidates, &mut device, &RacePlan { seed, ..RacePlan::default() }, &mut || false);
    (race, device)
}

fn contenders(candidates: usize) -> Vec<Contender> {
    (0..candidates)
        .map(|i| Contender {
            candidate: Candidate {
                variant: format!("v{i:02}"),
                config: Config::new(),
                source: SourceHash(String::new()),
            },
            error: 1e-6,
            workspace: 0,
            priority: 1,
            incumbent: false,
        })
        .collect()
}

fn lane_of(verdict: &Verdict) -> usize {
    verdict.winner.variant[1..].parse().unwrap()
}

fn score(world: World, candidates: usize, trials: u64) -> Score {
    let facts = contenders(candidates);
    // The long form runs on seeds none of the race's constants were chosen on.
    let first = if long() { 1_000_000 } else { 0 };
    let (mut leaders, mut winners, mut launches) = (0, 0, 0);
    for trial in 0..trials {
        let (race, device) = run(world, candidates, (first + trial) * 7919 + candidates as u64);
        let verdict = decide(&race, &facts, &RacePlan::default(), false).unwrap();
        leaders += u32::from(device.loss(race.leader.unwrap()) <= 0.01);
        winners += u32::from(device.loss(lane_of(&verdict)) <= 0.01);
        launches += race.launches;
    }
    let n = trials as f64;
    Score {
        leaders: 100.0 * f64::from(leaders) / n,
        winners: 100.0 * f64::from(winners) / n,
        launches: launches as f64 / n / candidates as f64,
    }
}

fn long() -> bool {
    std::env::var_os("WARPLAP_LONG").is_some_and(|v| v == "1")
}

#[test]
fn the_pick_is_within_one_per_cent_of_the_best_in_every_world() {
    println!("| world | K | trials | leader within 1 % | winner within 1 % | launches per candidate |");
    println!("|---|---|---|---|---|---|");
    let mut short = Vec::new();
    for (candidates, trials) in [(8, if long() { 4000 } else { 400 }), (32, if long() { 2000 } else { 200 })] {
        for world in WORLDS {
            let s = score(world, candidates, trials);
            let name = world.name;
            println!("| {name} | {candidates} | {trials} | {:.1} | {:.1} | {:.1} |", s.leaders, s.winners, s.launches);
            let asked = if name == "mixed" { 95.0 } else { 99.0 };
            if s.leaders < asked || s.winners < asked {
                short.push(format!("{name} at K = {candidates}: {:.1} / {:.1} %", s.leaders, s.winners));
            }
            // Where the leader's time is not known within 5 %, blocks go on until it is: the price of the two worlds with spells.
            if s.launches > 16.0 {
                short.push(format!("{name} at K = {candidates}: {:.1} launches per candidate", s.launches));
            }
        }
    }
    assert!(short.is_empty(), "{short:?}");
}

#[test]
fn the_same_key_raced_a_hundred_times_has_one_winner_or_says_tie() {
    // The same candidates under other seeds of noise and order; `mixed` has no one truth to agree on.
    for world in WORLDS.into_iter().filter(|w| w.name != "mixed") {
        for behind in [0.0, 0.004, 0.015, 0.03] {
            let facts = contenders(8);
            let mut won = [0; 8];
            for seed in 0..100 {
                let mut device = Device::new(world, 8, seed);
                for (i, lane) in device.contestants.iter_mut().enumerate() {
                    let slower = [0.0, behind, 0.05, 0.08, 0.2, 0.5, 1.0, 2.0][i];
                    lane[0] = (1e-3f64 * (1.0 + slower)).ln();
                }
                let plan = RacePlan { seed, ..RacePlan::default() };
                let race = race(8, &mut device, &plan, &mut || false);
                let verdict = decide(&race, &facts, &plan, false).unwrap();
                if !verdict.is_tie() {
                    won[lane_of(&verdict)] += 1;
                }
            }
            let sure: u32 = won.iter().sum();
            let other = sure - won.iter().max().unwrap();
            println!("{} with {behind}: {sure} without a tie, {other} of them for another winner", world.name);
            assert!(other <= 1, "{} with {behind}: {won:?}", world.name);
        }
    }
}
