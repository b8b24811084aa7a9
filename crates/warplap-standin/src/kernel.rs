//! Kernels by name: the line that begins with `//@` says what a text does when it is launched.
//!
//! `add`: c = a + b over n floats, the arguments being a, b, c and n (`add 3`: drawing three millijoules). `subtract`: the wrong answer to it. `nothing`: leaves
//! the output as it was. `fault CODE`: fails when it is waited for. `hang`: never ends. `refuse CODE`: the launch fails.
//! `die`: takes the process with it. A line `//? NAME=VALUE act` counts, and before all others, where `-DNAME=VALUE` is given.

use crate::state::{State, fail, state};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    /// It draws so many millijoules.
    Add(u64),
    Subtract,
    Nothing,
    Canary,
    Fault(i32),
    Refuse(i32),
    Hang,
    Die,
}

/// One launch with its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) act: Act,
    pub(crate) pointers: [usize; 3],
    pub(crate) len: usize,
}

impl Act {
    pub(crate) fn of(text: &str, entry: &str) -> Option<Act> {
        if entry == "canary" {
            return Some(Act::Canary);
        }
        let said = text.lines().find_map(|line| line.trim().strip_prefix("//@"))?;
        let mut words = said.split_whitespace();
        let act = words.next()?;
        let number = words.next();
        let code = number.and_then(|w| w.parse().ok()).unwrap_or(999);
        let drawn = number.and_then(|w| w.parse().ok()).unwrap_or(1);
        Some(match act {
            "add" => Act::Add(drawn),
            "subtract" => Act::Subtract,
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
    pub(crate) unsafe fn new(act: Act, arguments: *const *const usize) -> Run {
        let mut run = Run { act, pointers: [0; 3], len: 0 };
        unsafe {
            match act {
                Act::Add(_) | Act::Subtract => {
                    for (i, pointer) in run.pointers.iter_mut().enumerate() {
                        *pointer = **arguments.add(i);
                    }
                    run.len = (*arguments.add(3)).cast::<i32>().read().max(0) as usize;
                }
                Act::Canary => run.pointers[0] = **arguments,
                _ => {}
            }
        }
        run
    }

    /// Runs it; what it will say when it is waited for is remembered.
    pub(crate) fn run(self) -> Result<(), i32> {
        let [a, b, c] = self.pointers;
        match self.act {
            Act::Add(_) | Act::Subtract => {
                let (sign, drawn) = if let Act::Add(drawn) = self.act { (1.0, drawn) } else { (-1.0, 1) };
                state().millijoules += drawn;
                for i in 0..self.len {
                    let at = |p: usize| (p + 4 * i) as *mut f32;
                    // SAFETY: the caller's buffers hold so many floats.
                    unsafe { at(c).write(at(a).read() + sign * at(b).read()) }
                }
            }
            Act::Canary => {
                for i in 0..32 {
                    // SAFETY: as above.
                    unsafe { ((a + 4 * i) as *mut i32).write(0x0600_d000 + i as i32) }
                }
            }
            Act::Nothing => {}
            Act::Refuse(code) => return fail(code),
            Act::Die => std::process::abort(),
            Act::Fault(_) | Act::Hang => later(&mut state(), self.act),
        }
        Ok(())
    }
}

fn later(state: &mut State, act: Act) {
    // The first fault is the one that is told.
    state.pending.get_or_insert(act);
}
