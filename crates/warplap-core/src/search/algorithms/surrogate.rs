//! Surrogate search: minds that forecast times, and whose turn it is.
//!
//! One mind alone settles in a valley, and one that starts from another device's best settles in theirs. So a second,
//! fresh mind begins beside the first when that has gained nothing for a while: it draws a sample of its own, knows
//! only what it asked for itself, and takes every second turn. The first knows everything.

use std::collections::HashMap;

use crate::search::ground::Spot;
use crate::search::mind::Mind;
use crate::search::walk::{Seen, WalkRule};

/// Trials without a gain after which a fresh mind begins.
const PATIENCE: usize = 40;
/// The same where the first mind started from donors, which it may try out for as many trials at least: those who
/// mislead are found out soon.
const PATIENCE_WITH_DONORS: usize = 6;
const TRUST: usize = 10;
/// Trials without a gain after which a fresh mind makes place for another.
const RENEWED: usize = 60;
/// A gain worth a word: this share of the way, in logarithms, from the median to the best.
const WORTH: f64 = 0.05;
/// A fresh mind that overtakes one that started from donors has refuted them: the other then has one turn of so many.
const REFUTED: usize = 8;

/// Surrogate search with expected improvement.
pub(crate) struct Surrogate {
    /// The one that knows everything, and the fresh one beside it.
    elder: Mind,
    fresh: Option<Mind>,
    /// Who asked for a spot.
    asked_by: HashMap<Spot, usize, foldhash::fast::FixedState>,
    minds: usize,
    turn: usize,
    best: f64,
    refuted: bool,
}

impl Surrogate {
    pub(crate) fn new() -> Self {
        let (elder, best) = (Mind::new(0), f64::INFINITY);
        Surrogate { elder, fresh: None, asked_by: HashMap::default(), minds: 1, turn: 0, best, refuted: false }
    }

    /// Begins a fresh mind where one is due.
    fn renew(&mut self, priors: bool) {
        let due = match &self.fresh {
            Some(fresh) => fresh.idle >= RENEWED,
            None if priors => self.elder.turns >= TRUST && self.elder.idle >= PATIENCE_WITH_DONORS,
            None => self.elder.idle >= PATIENCE,
        };
        if due {
            self.fresh = Some(Mind::new(self.minds));
            self.minds += 1;
        }
    }
}

impl WalkRule for Surrogate {
    fn next(&mut self, seen: &mut Seen) -> Option<Spot> {
        self.renew(seen.priors >= 3);
        self.turn += 1;
        let elders = if self.refuted { REFUTED } else { 2 };
        let (mind, spot) = match &mut self.fresh {
            Some(fresh) if !self.turn.is_multiple_of(elders) => {
                let own = |r: &&(f64, Spot)| self.asked_by.get(&r.1) == Some(&fresh.number);
                let right: Vec<(f64, Spot)> = seen.right.iter().filter(own).copied().collect();
                let asked = fresh.turns;
                let spot = fresh.next(seen, &right, asked);
                (fresh, spot)
            }
            _ => {
                let (right, asked) = (seen.right.clone(), seen.asked());
                let spot = self.elder.next(seen, &right, asked);
                (&mut self.elder, spot)
            }
        };
        mind.turns += 1;
        self.asked_by.insert(spot?, mind.number);
        spot
    }

    fn learn(&mut self, spot: Spot, time: Option<f64>, seen: &mut Seen) {
        let who = self.asked_by.get(&spot).copied().unwrap_or(0);
        let middle = seen.right.get(seen.right.len().saturating_sub(1) / 2);
        let least = middle.map_or(0.0, |m| WORTH * (m.0 / seen.right[0].0).ln());
        self.elder.note(time, who == 0, least);
        if let Some(fresh) = self.fresh.as_mut().filter(|f| f.number == who) {
            fresh.note(time, true, least);
        }
        if let Some(time) = time.filter(|t| *t < self.best) {
            self.best = time;
            self.refuted |= who != 0 && seen.priors >= 3;
        }
    }
}
