//! Kernels by name: the line that begins with `//@` says what a text does when it is launched.
//!
//! `add`: c = a + b over n floats, the arguments being a, b, c and n (`add 3`: drawing three millijoules). `subtract`:
//! the wrong answer to it. `weigh`: the same sum with the factors of the global `weights` before a and b. `gather`: c =
//! c + a, the arguments being a, c and n. `remember`: the sum, unless the first element of a is as it was at the last
//! launch; then nothing is written. `recite`: the same, and then the last answer is written again. `nothing`: leaves
//! the output as it was. `fault CODE`: fails when it is waited for. `hang`: never ends. `refuse CODE`: the launch
//! fails. `die`: takes the process with it. A line `//? NAME=VALUE act` counts, and before all others, where
//! `-DNAME=VALUE` is given; a line `//# NAME BYTES` declares a global; a line `//~ 200 50` says that a launch takes 200
//! µs and that one behind it which may begin early does so 50 µs before it ends.

use crate::compare::{Compare, Kind};
use crate::nvrtc::OPTIONS;
use crate::perturb::Stir;
use crate::state::{INVALID, State, fail, state};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    /// It draws so many millijoules.
    Add(u64),
    Subtract,
    Weigh,
    Gather,
    Remember,
    Recite,
    Nothing,
    Canary,
    /// Stirs, and lasts as long as its second argument says.
    Neutral,
    /// Compares, or seals where that is said.
    Compare(Kind, bool),
    Fault(i32),
    Refuse(i32),
    Hang,
    Die,
}

/// One launch with its arguments, or a copy.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "launches are copied into graphs, and there are few of them")]
pub(crate) enum Run {
    Act {
        act: Act,
        pointers: [usize; 3],
        len: usize,
        /// What a and b are multiplied with before they are added.
        factors: [f32; 2],
        lasts: Lasts,
    },
    Compare(Compare),
    Stir {
        turns: usize,
        perturb: Stir,
        lasts: Lasts,
    },
    Copy {
        to: usize,
        from: usize,
        bytes: usize,
    },
}

/// How long a launch takes on the device, and how much of that one behind it may run beside.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Lasts {
    pub(crate) micros: f64,
    pub(crate) tail: f64,
    /// Whether it may begin early itself.
    pub(crate) early: bool,
}

impl Lasts {
    pub(crate) fn of(text: &str) -> Lasts {
        let said = text.lines().find_map(|line| line.trim().strip_prefix("//~")).unwrap_or_default();
        let mut numbers = said.split_whitespace().filter_map(|w| w.parse().ok());
        let (micros, tail) = (numbers.next().unwrap_or(0.0), numbers.next().unwrap_or(0.0));
        Lasts { micros, tail, early: false }
    }
}

impl Act {
    pub(crate) fn of(text: &str, entry: &str) -> Option<Act> {
        if let Some(act) = [("canary", Act::Canary), ("neutral", Act::Neutral)].into_iter().find(|(e, _)| *e == entry) {
            return Some(act.1);
        }
        let after = |mark: &str| text.lines().find_map(|line| line.trim().strip_prefix(mark));
        if entry == "compare" {
            let options = after(OPTIONS.trim_end())?;
            return Some(Act::Compare(Kind::of(options)?, options.contains("-DPART=1")));
        }
        let said = after("//@")?;
        let mut words = said.split_whitespace();
        let act = words.next()?;
        let number = words.next();
        let code = number.and_then(|w| w.parse().ok()).unwrap_or(999);
        let drawn = number.and_then(|w| w.parse().ok()).unwrap_or(1);
        Some(match act {
            "add" => Act::Add(drawn),
            "subtract" => Act::Subtract,
            "weigh" => Act::Weigh,
            "gather" => Act::Gather,
            "remember" => Act::Remember,
            "recite" => Act::Recite,
            "nothing" => Act::Nothing,
            "fault" => Act::Fault(code),
            "refuse" => Act::Refuse(code),
            "hang" => Act::Hang,
            "die" => Act::Die,
            _ => return None,
        })
    }
}

impl Run {
    /// # Safety
    /// The arguments are those the act takes.
    pub(crate) unsafe fn new(
        act: Act,
        arguments: *const *const usize,
        module: usize,
        blocks: usize,
        mut lasts: Lasts,
    ) -> Result<Run, i32> {
        let word = |i: usize| unsafe { **arguments.add(i) };
        let count = |i: usize| unsafe { (*arguments.add(i)).cast::<i32>().read() }.max(0) as usize;
        let float = |i: usize| unsafe { (*arguments.add(i)).cast::<f64>().read() };
        let (pointers, len) = match act {
            Act::Compare(dtype, true) => {
                let (got, len, out) = (word(0), word(1), word(2));
                let (right, guard, bounds) = (0, 0, [0.0; 3]);
                return Ok(Run::Compare(Compare { dtype, got, right, len, guard, bounds, out, blocks }));
            }
            Act::Compare(dtype, false) => {
                let (got, right, len, guard) = (word(0), word(1), word(2), word(3));
                let (bounds, out) = ([float(4), float(5), float(6)], word(7));
                return Ok(Run::Compare(Compare { dtype, got, right, len, guard, bounds, out, blocks }));
            }
            Act::Add(_) | Act::Subtract | Act::Weigh | Act::Remember | Act::Recite => {
                ([word(0), word(1), word(2)], count(3))
            }
            Act::Gather => ([word(0), word(1), word(1)], count(2)),
            Act::Canary => ([word(0), 0, 0], 0),
            Act::Neutral => {
                lasts.micros = word(1) as f64 * 1e-3;
                let perturb = unsafe { (*arguments.add(2)).cast::<Stir>().read() };
                return Ok(Run::Stir { turns: word(0), perturb, lasts });
            }
            _ => ([0; 3], 0),
        };
        let factors = match act {
            Act::Subtract => [1.0, -1.0],
            Act::Weigh => {
                let (at, _) = *state().globals.get(&(module, "weights".to_string())).ok_or(INVALID)?;
                unsafe { (at as *const [f32; 2]).read() }
            }
            _ => [1.0; 2],
        };
        Ok(Run::Act { act, pointers, len, factors, lasts })
    }

    pub(crate) fn copy(to: usize, from: usize, bytes: usize) -> Run {
        Run::Copy { to, from, bytes }
    }

    /// Runs it; what it will say when it is waited for is remembered.
    pub(crate) fn run(self) -> Result<(), i32> {
        let (act, [a, b, c], len, factors) = match self {
            Run::Act { act, pointers, len, factors, lasts } => {
                state().passes(lasts);
                (act, pointers, len, factors)
            }
            Run::Stir { turns, perturb, lasts } => {
                state().passes(lasts);
                let turn = turns as *mut u32;
                // SAFETY: the caller's buffers hold so many bytes.
                unsafe {
                    *turn = (*turn).wrapping_add(1);
                    perturb.run(*turn);
                }
                return Ok(());
            }
            Run::Compare(compare) => {
                compare.run();
                return Ok(());
            }
            Run::Copy { to, from, bytes } => {
                // SAFETY: the caller's buffers hold so many bytes.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
                return Ok(());
            }
        };
        match act {
            Act::Add(_) | Act::Subtract | Act::Weigh | Act::Gather => {
                state().millijoules += if let Act::Add(drawn) = act { drawn } else { 1 };
                for i in 0..len {
                    let at = |p: usize| (p + 4 * i) as *mut f32;
                    // SAFETY: as above.
                    unsafe { at(c).write(factors[0] * at(a).read() + factors[1] * at(b).read()) }
                }
            }
            Act::Remember | Act::Recite => {
                // SAFETY: as above.
                let at = |p: usize| unsafe { std::slice::from_raw_parts(p as *const f32, len) };
                let mut state = state();
                let known = state.remembered.get(&c).filter(|(first, kept)| *first == at(a)[0] && kept.len() == len);
                if known.is_some() && act == Act::Remember {
                    return Ok(());
                }
                let sum = || at(a).iter().zip(at(b)).map(|(a, b)| a + b).collect();
                let answer: Vec<f32> = known.map_or_else(sum, |(_, kept)| kept.clone());
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(answer.as_ptr(), c as *mut f32, len) };
                state.remembered.insert(c, (at(a)[0], answer));
            }
            Act::Canary => {
                for i in 0..32 {
                    // SAFETY: as above.
                    unsafe { ((a + 4 * i) as *mut i32).write(0x0600_d000 + i as i32) }
                }
            }
            Act::Nothing | Act::Neutral | Act::Compare(..) => {}
            Act::Refuse(code) => return fail(code),
            Act::Die => std::process::abort(),
            Act::Fault(_) | Act::Hang => later(&mut state(), act),
        }
        Ok(())
    }
}

fn later(state: &mut State, act: Act) {
    // The first fault is the one that is told.
    state.pending.get_or_insert(act);
}
