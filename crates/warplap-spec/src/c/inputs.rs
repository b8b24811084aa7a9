//! Inputs of timed launches: what they were, and a seed, come in; whether they are now what a cell was to make of them
//! goes out. A kernel that changes its inputs while it is timed would have others judged by what it left.

use warplap::core::rejection::Rejection;

use super::lap::{POISON, RemoteLap, SWAP};
use super::memory::Memory;
use super::remote::wrong;

/// The inputs of the first set as they were before a sample.
pub(super) struct Inputs {
    first: usize,
    content: Vec<Option<Vec<u8>>>,
}

impl Inputs {
    /// Those whose memory is no larger than this.
    pub(super) fn of(lap: &RemoteLap, largest: u64) -> Result<Self, Rejection> {
        let read = |(memory, plan): (&Memory, &[u64; 4])| {
            let wanted = plan[0] == SWAP && plan[1] * plan[2] <= largest;
            wanted.then(|| memory.read()).transpose().map_err(failed)
        };
        let memories = lap.sets[0].spots.iter().map(|spot| &*spot.memory);
        memories.zip(&lap.plan).map(read).collect::<Result<_, _>>().map(|content| Inputs { first: lap.next(), content })
    }

    /// Whether they are now what so many launches by a seed make of them: the elements that changed places, and no
    /// other ones.
    pub(super) fn are_stirred(mut self, lap: &RemoteLap, seed: u64, launches: u32) -> Result<(), Rejection> {
        let (mut state, sets) = (seed | 1, lap.sets.len());
        let mut drawn = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below) as usize
        };
        let spots = &lap.sets[0].spots;
        for launch in self.first..self.first + launches as usize {
            for ((plan, input), spot) in lap.plan.iter().zip(&mut self.content).zip(spots) {
                let (len, bytes) = (plan[1], plan[2] as usize);
                match plan[0] {
                    SWAP => {
                        let (a, b) = (drawn(len), drawn(len));
                        if let Some(input) = input.as_mut().filter(|_| launch % sets == 0) {
                            let from = spot.offset as usize;
                            (0..bytes).for_each(|i| input.swap(from + a * bytes + i, from + b * bytes + i));
                        }
                    }
                    POISON => drop(drawn(len)),
                    _ => {}
                }
            }
        }
        for (input, spot) in self.content.iter().zip(spots) {
            let Some(expected) = input else { continue };
            if spot.memory.read().map_err(failed)? != *expected {
                // Nobody else is to be judged by it.
                spot.memory.write(expected).map_err(failed)?;
                let name = &lap.sets[0].spec.arguments[spot.argument].name;
                return Err(wrong(format!("its input '{name}' is not what it was given while it was timed")));
            }
        }
        Ok(())
    }
}

fn failed(error: std::io::Error) -> Rejection {
    Rejection::LaunchFailed { reason: format!("shared memory: {error}") }
}
