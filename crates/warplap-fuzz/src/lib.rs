//! Fuzzing on stable: `tests/fuzz/` hands changed bytes to every parser that reads what others may have written, and
//! `corpus/` holds what it begins with. See `docs/results/faults.md` for how it is run.
