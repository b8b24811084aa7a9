//! Particle swarm: particles fly over the value numbers, drawn to their own best spot and to everybody's.

use std::collections::HashMap;

use crate::search::ground::{Spot, Standpoint};
use crate::search::population::{rounded, settle};
use crate::search::walk::{Seen, WalkRule};

const SIZE: usize = 20;
const INERTIA: f64 = 0.6;
const OWN: f64 = 1.3;
const ALL: f64 = 1.6;

struct Particle {
    at: Vec<f64>,
    speed: Vec<f64>,
    best: (f64, Standpoint),
}

/// Particle swarm over value numbers.
#[derive(Default)]
pub(crate) struct Swarm {
    particles: Vec<Particle>,
    turn: usize,
    /// Who asked for a spot.
    asked: HashMap<Spot, usize>,
}

impl WalkRule for Swarm {
    fn next(&mut self, seen: &mut Seen) -> Option<Spot> {
        if seen.asked() < SIZE || self.particles.is_empty() {
            return seen.random();
        }
        let leader = seen.ground.place(seen.right.first()?.1)?;
        self.turn = (self.turn + 1) % self.particles.len();
        let particle = &mut self.particles[self.turn];
        if particle.best.1.arm != leader.arm {
            // Another variant's particle starts again at the leader's.
            let at: Vec<f64> = leader.point.iter().map(|v| f64::from(*v)).collect();
            (particle.speed, particle.at) = (vec![0.0; at.len()], at);
            particle.best = (f64::INFINITY, leader.clone());
        }
        for _ in 0..20 {
            let sizes: Vec<usize> = seen.ground.axes(leader.arm).iter().map(|a| a.values().len()).collect();
            for (axis, size) in sizes.iter().enumerate() {
                let pull = |to: u16, by: f64, r: f64| by * r * (f64::from(to) - particle.at[axis]);
                let own = pull(particle.best.1.point[axis], OWN, seen.rng.f64());
                let all = pull(leader.point[axis], ALL, seen.rng.f64());
                let shake = (seen.rng.f64() - 0.5) * 0.8;
                particle.speed[axis] = INERTIA * particle.speed[axis] + own + all + shake;
                particle.at[axis] = (particle.at[axis] + particle.speed[axis]).clamp(0.0, *size as f64 - 1.0);
            }
            let point = particle.at.iter().zip(&sizes).map(|(x, n)| rounded(*x, *n)).collect();
            let from = particle.best.1.clone();
            if let Some(spot) = settle(seen, point, &from) {
                self.asked.insert(spot, self.turn);
                return Some(spot);
            }
        }
        None
    }

    fn learn(&mut self, spot: Spot, time: Option<f64>, seen: &mut Seen) {
        let (Some(time), Some(place)) = (time, seen.ground.place(spot)) else { return };
        match self.asked.remove(&spot) {
            Some(who) if time < self.particles[who].best.0 => self.particles[who].best = (time, place),
            Some(_) => {}
            None if self.particles.len() < SIZE => {
                let at: Vec<f64> = place.point.iter().map(|v| f64::from(*v)).collect();
                self.particles.push(Particle { speed: vec![0.0; at.len()], at, best: (time, place) });
            }
            None => {}
        }
    }
}
