//! The whole road on a fake device whose clock is a table: what is raced, kept, answered, and what never happens.
#![allow(unreachable_pub, reason = "the rooms of one test program")]

mod at_home;
mod bad;
mod beside;
mod border;
mod buckets;
mod budget;
mod choosing;
mod descend;
mod end_to_end_race;
mod fake;
mod going_on;
mod imported;
mod keeping;
mod own_arguments;
mod racing;
mod slots;
mod stale;
mod support;
mod sure;
mod telling;
mod texts;
