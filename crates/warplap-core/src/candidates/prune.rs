//! Pruning: spaces and limits come in; arms of legal candidates go out, and why each other one left. Times nothing.

use crate::candidates::variant::Needs;
use crate::device::{Device, Limits};
use crate::model::erased::ListedVariant;
use crate::record::Skipped;
use crate::search::Arm;
use crate::space::Config;

/// Larger spaces are not listed: what exceeds the limits there is found out when it is built.
const LISTED: u64 = 1 << 16;

/// The arms that may be searched, and what was left out.
#[derive(Debug, Default)]
pub struct Pruned {
    /// What is left.
    pub arms: Vec<Arm>,
    /// What left, and why.
    pub skipped: Vec<Skipped>,
}

/// Lists every legal config of every listed variant and leaves out what exceeds the device's limits.
pub fn prune<D: Device>(listed: &[ListedVariant<'_, D>], device: &D) -> Pruned {
    let limits = device.limits();
    let mut pruned = Pruned::default();
    for entry in listed {
        let variant = entry.runner;
        let space = variant.space(device);
        let arm = Arm::new(variant.id(), variant.source(), entry.priority, space);
        let mut over: Vec<String> = Vec::new();
        let arm =
            if arm.len() <= LISTED { within(arm, |c| excess(&variant.needs(c), &limits), &mut over) } else { arm };
        let skip = |configs: usize, reason: String| Skipped {
            variant: variant.id().into(),
            source: variant.source(),
            configs: configs as u64,
            reason,
        };
        if let Some(first) = over.first() {
            pruned.skipped.push(skip(over.len(), first.clone()));
        } else if arm.is_empty() {
            pruned.skipped.push(skip(0, "its rules leave no legal config".into()));
        }
        if !arm.is_empty() {
            pruned.arms.push(arm);
        }
    }
    pruned
}

/// What is left of an arm; why the others left goes to `over`. The default stays first: it is what a user would get,
/// and a short budget should have seen it.
fn within(arm: Arm, excess: impl Fn(&Config) -> Option<String>, over: &mut Vec<String>) -> Arm {
    let mut kept = Vec::new();
    for (index, config) in arm.listed() {
        match excess(&config) {
            None => kept.push(index),
            Some(reason) => over.push(reason),
        }
    }
    arm.keep(kept)
}

/// Which limit is exceeded, and by how much.
fn excess(needs: &Needs, limits: &Limits) -> Option<String> {
    let over = |what: &str, asked: u64, there: u64, none_means_unknown: bool| {
        let known = !(none_means_unknown && there == 0);
        (known && asked > there).then(|| format!("over limits: {what} {asked} of {there}"))
    };
    over("threads", needs.threads, limits.threads, false)
        .or_else(|| over("bytes of workspace", needs.workspace, limits.workspace, false))
        .or_else(|| over("bytes of shared memory", needs.shared_memory, limits.shared_memory, true))
        .or_else(|| over("registers", needs.registers, limits.registers, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_names_what_was_asked_and_what_there_is() {
        let limits = Limits { threads: 4, workspace: 100, shared_memory: 0, registers: 255 };
        assert_eq!(excess(&Needs { threads: 4, ..Needs::default() }, &limits), None);
        let reason = excess(&Needs { workspace: 101, ..Needs::default() }, &limits).unwrap();
        assert!(reason.contains("101 of 100"), "{reason}");
        assert_eq!(excess(&Needs { shared_memory: 9, ..Needs::default() }, &limits), None);
    }
}
