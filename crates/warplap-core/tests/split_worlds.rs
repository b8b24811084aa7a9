//! A space split over eight simulated cards, in four worlds: how often the pick is within 1 % of the best, and how much
//! sooner it is known. The functions are those that a fleet splits with; the races are real ones on a simulated clock.
//!
//! The model, written down before it was first run:
//!
//! - 256 candidates: the best takes 1 ms on a card of nominal speed, each other 1 + 1.5 u ms with u uniform. Each is
//!   bound by arithmetic to a share of its own, uniform, and by memory for the rest.
//! - 8 cards: each has a factor of its own for arithmetic and one for memory, lognormal with the world's sigmas. Beside
//!   that one card may be hot: 1.3 times slower in arithmetic alone.
//! - Each launch has lognormal noise of 1 %; one in a hundred is struck and takes 5 to 100 % longer.
//! - Ceilings are measured with an error of 0.5 %.
//! - Building and proving a candidate takes 30 ms on each card it races on; a launch and a pause take what they take.
//!
//! Two things came after the first look at its figures: what is done where fewer than two cards pass the gate, and the
//! second table with 1,024 candidates, because with 256 the whole is not five times faster.
//!
//! The truth is the time on a card of nominal speed. Measuring a card's ceilings is not counted: it is done once a card.
//!
//! `cargo test -p warplap-core --test split_worlds -- --nocapture` (about 8 s); `WARPLAP_LONG=1` runs 600 of each
//! world (10 to 15 min).
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use warplap_core::candidate::{Candidate, SourceHash};
use warplap_core::dtype::DType;
use warplap_core::measure::{RacePlan, Stopwatch, race};
use warplap_core::rejection::Rejection;
use warplap_core::roofline::{Bandwidth, Ceilings};
use warplap_core::space::Config;
use warplap_core::split::gate::{self, OFF, Seats, seats};
use warplap_core::split::{Gathered, GpuContest, Share, screen};
use warplap_core::verdict::Contender;

const CANDIDATES: usize = 256;
const MANY: usize = 1024;
const CARDS: usize = 8;
/// Seconds to build and prove a candidate.
const PROOF: f64 = 0.03;
const EPS: f64 = 0.01;

#[derive(Clone, Copy)]
struct World {
    name: &'static str,
    /// Sigma of the cards' arithmetic and memory.
    sigma: [f64; 2],
    hot: bool,
}

const WORLDS: [World; 4] = [
    World { name: "one node (1 % / 0.3 %)", sigma: [0.01, 0.003], hot: false },
    World { name: "a cluster (3 % / 1 %)", sigma: [0.03, 0.01], hot: false },
    World { name: "with one hot card (1.3×)", sigma: [0.03, 0.01], hot: true },
    World { name: "a wild cloud (10 % / 8 %)", sigma: [0.10, 0.08], hot: false },
];

fn normal(rng: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// One candidate: seconds on a nominal card, and the share of them that is arithmetic.
#[derive(Clone, Copy)]
struct Kernel {
    seconds: f64,
    arithmetic: f64,
}

/// How much slower a card is than a nominal one, in arithmetic and in memory.
#[derive(Clone, Copy)]
struct Gpu {
    factors: [f64; 2],
}

impl Gpu {
    fn seconds(&self, kernel: Kernel) -> f64 {
        let [arithmetic, memory] = self.factors;
        kernel.seconds * (kernel.arithmetic * arithmetic + (1.0 - kernel.arithmetic) * memory)
    }

    fn ceilings(&self, rng: &mut fastrand::Rng) -> Ceilings {
        let mut measured = |factor: f64| (0.005 * normal(rng)).exp() * 1e12 / factor;
        let flops = BTreeMap::from([(DType::F16, measured(self.factors[0]))]);
        let bandwidth = vec![Bandwidth { capacity: u64::MAX, rate: measured(self.factors[1]) }];
        Ceilings { flops, bandwidth, ..Ceilings::default() }
    }
}

/// The clock of a card with some candidates on it.
struct Clock<'k> {
    contestants: &'k [f64],
    rng: fastrand::Rng,
    passed: f64,
}

impl Stopwatch for Clock<'_> {
    fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
        let struck = if self.rng.f64() < 0.01 { 1.05 + 0.95 * self.rng.f64() } else { 1.0 };
        let seconds = self.contestants[lane] * (0.01 * normal(&mut self.rng)).exp() * struck;
        self.passed += seconds;
        Ok(seconds)
    }

    fn pause(&mut self, seconds: f64) {
        self.passed += seconds;
    }
}

/// One run of a world.
struct Run {
    kernels: Vec<Kernel>,
    contenders: Vec<Contender>,
    cards: Vec<Gpu>,
    rng: fastrand::Rng,
}

impl Run {
    fn new(world: &World, candidates: usize, seed: u64) -> Run {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut kernels: Vec<Kernel> = (0..candidates)
            .map(|_| Kernel { seconds: 1e-3 * (1.0 + 1.5 * rng.f64()), arithmetic: rng.f64() })
            .collect();
        kernels[rng.usize(..candidates)].seconds = 1e-3;
        let mut factor = |sigma: f64| (sigma * normal(&mut rng)).exp();
        let mut cards: Vec<Gpu> = (0..CARDS).map(|_| Gpu { factors: world.sigma.map(&mut factor) }).collect();
        if world.hot {
            cards[rng.usize(..CARDS)].factors[0] *= 1.3;
        }
        let contenders = (0..candidates).map(|i| contender(i as i64)).collect();
        Run { kernels, contenders, cards, rng }
    }

    /// Races these on a card. The heat's seconds are those of the simulated clock, proofs included.
    fn race_on(&mut self, card: usize, who: &[usize], confirm: bool) -> GpuContest {
        let contestants: Vec<f64> = who.iter().map(|i| self.cards[card].seconds(self.kernels[*i])).collect();
        let contenders: Vec<Contender> = who.iter().map(|i| self.contenders[*i].clone()).collect();
        let (seed, rng) = (self.rng.u64(..), self.rng.fork());
        let mut clock = Clock { contestants: &contestants, rng, passed: PROOF * who.len() as f64 };
        let plan = RacePlan { eps: EPS, confirm, seed, ..RacePlan::default() };
        let raced = race(who.len(), &mut clock, &plan, &mut || false);
        let race_on = GpuContest::of(&format!("card-{card}"), &raced, &contenders, &plan).expect("somebody finished");
        GpuContest { seconds: clock.passed, ..race_on }
    }

    /// Every card of these races its share, with or without the anchors' say.
    fn shares(&mut self, cards: &[usize]) -> Vec<GpuContest> {
        let (of, candidates) = (u32::try_from(cards.len()).unwrap(), self.kernels.len());
        let share = |nth: usize| Share { nth: u32::try_from(nth).unwrap(), of }.of_lists(&[candidates]).remove(0);
        cards.iter().enumerate().map(|(nth, card)| self.race_on(*card, &share(nth), false)).collect()
    }

    /// Whether a candidate is within 1 % of the best.
    fn is_good(&self, candidate: &Candidate) -> bool {
        self.kernels[index(candidate)].seconds <= 1.01e-3
    }
}

fn contender(i: i64) -> Contender {
    let candidate =
        Candidate { variant: "k".into(), config: Config::new().with("i", i), source: SourceHash(String::new()) };
    Contender { candidate, error: 0.0, workspace: 0, priority: 0, incumbent: false }
}

fn index(candidate: &Candidate) -> usize {
    usize::try_from(candidate.config.int("i").unwrap()).unwrap()
}

fn longest(contests: &[GpuContest]) -> f64 {
    contests.iter().map(|race_on| race_on.seconds).fold(0.0, f64::max)
}

/// What came of a world, added up over its runs.
#[derive(Default)]
struct Sum {
    runs: f64,
    alone: f64,
    raw: f64,
    /// Picks of finals on two and on four cards.
    finals: [f64; 2],
    /// Cards that pass the gate.
    pass: f64,
    /// Seconds: one card alone, the longest share, all of it with finals on two.
    seconds: [f64; 3],
}

fn run(world: &World, candidates: usize, seed: u64, sum: &mut Sum) {
    let mut run = Run::new(world, candidates, seed);
    let good = |run: &Run, c: &Candidate| f64::from(u8::from(run.is_good(c)));
    let everyone: Vec<usize> = (0..candidates).collect();
    let own = run.rng.usize(..CARDS);
    let alone = run.race_on(own, &everyone, true);
    sum.runs += 1.0;
    sum.alone += good(&run, &alone.verdict.winner);

    let all: Vec<usize> = (0..CARDS).collect();
    let shares = run.shares(&all);
    let times = shares.iter().flat_map(|race_on| &race_on.trials).filter_map(|t| Some((t.median_us()?, &t.candidate)));
    let fastest = times.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1;
    sum.raw += good(&run, fastest);

    let mut rng = run.rng.fork();
    let reach: Vec<gate::Reach> = run.cards.iter().map(|card| gate::reach(&card.ceilings(&mut rng))).collect();
    let Seats { screen, finals } = seats(&reach, OFF, 4);
    sum.pass += gate::off(&reach).iter().flatten().filter(|off| off.abs() <= OFF).count() as f64;
    let shares = run.shares(&screen);
    let best: Vec<usize> = screen::finalists(&shares).iter().map(index).collect();
    let last: Vec<GpuContest> = finals.iter().map(|card| run.race_on(*card, &best, true)).collect();
    for (at, cards) in [2, 4].into_iter().enumerate() {
        let last = &last[..cards.min(last.len())];
        let gathered = Gathered::of(&shares, last, EPS, 0.0).expect("two cards and somebody right");
        assert_eq!(gathered.trials.len(), candidates);
        sum.finals[at] += good(&run, &gathered.verdict.winner);
        if cards == 2 {
            let all = longest(&shares) + longest(last);
            let seconds = [alone.seconds, longest(&shares), all];
            sum.seconds.iter_mut().zip(seconds).for_each(|(sum, seconds)| *sum += seconds);
        }
    }
}

impl Sum {
    fn of(world: &World, candidates: usize, seeds: std::ops::Range<u64>) -> Sum {
        let mut sum = Sum::default();
        seeds.for_each(|seed| run(world, candidates, seed, &mut sum));
        sum
    }

    /// How much sooner the shares are through, and all of it.
    fn faster(&self) -> [f64; 2] {
        let [alone, shares, all] = self.seconds;
        [alone / shares, alone / all]
    }

    fn print(&self, world: &World) {
        let share = |of: f64| format!("{:.1} %", 100.0 * of / self.runs);
        let [picks, more] = self.finals.map(share);
        let [screening, all] = self.faster();
        println!(
            "| {} | {} | {} | {picks} | {more} | {:.1} of {CARDS} | {screening:.1}× | {all:.1}× |",
            world.name,
            share(self.alone),
            share(self.raw),
            self.pass / self.runs,
        );
    }
}

fn is_long() -> bool {
    std::env::var_os("WARPLAP_LONG").is_some()
}

const HEAD: &str = "| world | one card alone | raw times merged | split, finals on 2 | on 4 | pass the gate | screening | in all |\n\
                    |---|---|---|---|---|---|---|---|";

#[test]
fn a_split_space_finds_the_best_more_often_than_one_card_alone() {
    let runs = if is_long() { 600 } else { 12 };
    println!("{HEAD}");
    for (at, world) in WORLDS.iter().enumerate() {
        let first = 1000 * at as u64;
        let sum = Sum::of(world, CANDIDATES, first..first + runs);
        sum.print(world);
        assert!(sum.finals[0] > sum.raw && sum.finals[1] > sum.raw, "{}: no better than raw times", world.name);
        if at < 2 {
            // Of few runs one may miss.
            let least = if is_long() { 0.98 * sum.runs } else { sum.runs - 1.0 };
            assert!(sum.finals.iter().all(|picks| *picks >= least), "{}: {:?}", world.name, sum.finals);
            assert!(sum.finals[0] >= sum.alone, "{}: {} alone", world.name, sum.alone);
            assert!(sum.faster()[0] >= 5.0, "{}: {:?}", world.name, sum.faster());
        }
    }
}

#[test]
fn the_larger_a_space_the_more_is_gained() {
    let runs = if is_long() { 60 } else { 2 };
    println!("{HEAD}");
    for (at, world) in WORLDS.iter().enumerate().take(2) {
        let first = 5000 + 1000 * at as u64;
        let sum = Sum::of(world, MANY, first..first + runs);
        sum.print(world);
        assert!(sum.faster()[1] >= 5.0, "{}: {:?}", world.name, sum.faster());
    }
}
