//! The page about a graph: its story goes out as the plain values that pages are drawn of.

use warplap_core::candidate::Outcome;
use warplap_core::record::TuningRun;
use warplap_report::graph_page::{Cover, Decided, Kind, Lane, Node, Page, Unmeasured};

use super::explain::Story;
use super::node::What;

impl Story<'_> {
    /// The page: the graph with what one launch computes, and what every choice took.
    pub(super) fn page(&self) -> Page {
        Page { title: "Fused graph".into(), graphs: vec![self.decided()] }
    }

    fn decided(&self) -> Decided {
        let plan = self.plan;
        let partition = plan.partitions.iter().find(|p| p.id == self.winner);
        let covers = partition.map_or(&[][..], |p| &p.covers[..]);
        // Inputs first: nodes read each other, and them, by their places.
        let mut nodes: Vec<Node> = Vec::new();
        let mut place = vec![usize::MAX; plan.values.len()];
        // Weights would only be in the way.
        let flows = |value: usize| {
            let through = |node: &super::node::Node| match node.what {
                What::Product { .. } | What::Norm { .. } => node.reads.first() == Some(&value),
                _ => node.reads.contains(&value),
            };
            plan.nodes.iter().any(through)
        };
        for (name, value) in plan.inputs.iter().filter(|(_, value)| flows(*value)) {
            place[*value] = nodes.len();
            nodes.push(Node { name: name.clone(), kind: Kind::Input, ..Node::default() });
        }
        for (at, node) in plan.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|value| place[*value] = nodes.len());
            nodes.push(Node {
                name: node.outputs.iter().map(|value| self.name(*value)).collect::<Vec<_>>().join(", "),
                does: node.word(),
                reads: node.reads.iter().map(|value| place[*value]).filter(|at| *at != usize::MAX).collect(),
                cover: covers.iter().position(|cover| plan.covers[*cover].nodes.contains(&at)),
                kind: Kind::Work,
                is_seen: plan.outputs.iter().any(|(_, value)| node.outputs.contains(value)),
            });
        }
        let (lanes, unmeasured) = match (&self.edition, self.guess) {
            (_, Some(guess)) => {
                let lane = |(name, seconds): (&String, &f64)| Lane {
                    name: name.clone(),
                    us: Some(seconds * 1e6),
                    is_taken: *name == self.winner,
                    is_predicted: true,
                    ..Lane::default()
                };
                (guess.seconds.iter().map(lane).collect(), Vec::new())
            }
            (Some(edition), None) => (self.page_rows(edition), skipped(edition)),
            (None, None) => (Vec::new(), Vec::new()),
        };
        let covered = nodes.iter().filter(|node| node.cover.is_some()).count();
        Decided {
            title: format!("{} operations, {covered} of them covered", plan.nodes.len()),
            key: self.key.clone(),
            how: self.how.clone(),
            plain: "a launch of its own".into(),
            covers: covers.iter().map(|cover| Cover { name: plan.kind(*cover).to_string() }).collect(),
            nodes,
            lanes,
            unmeasured,
        }
    }

    /// Who raced as a whole, and who left and why.
    fn page_rows(&self, edition: &TuningRun) -> Vec<Lane> {
        let timed = edition.ranked().into_iter().map(|r| Lane {
            name: r.trial.candidate.variant.clone(),
            us: Some(r.time_us),
            is_taken: r.trial.candidate.variant == self.winner,
            is_tie: r.tie,
            ..Lane::default()
        });
        let left = edition.trials.iter().filter(|trial| !trial.is_right()).filter_map(|trial| match &trial.outcome {
            Outcome::Rejected(why) => {
                Some(Lane { name: trial.candidate.variant.clone(), why: why.to_string(), ..Lane::default() })
            }
            _ => None,
        });
        timed.chain(left).collect()
    }
}

/// Partitions that did not race, by what their parts took, or why.
fn skipped(edition: &TuningRun) -> Vec<Unmeasured> {
    let one = |skipped: &warplap_core::record::Skipped| {
        let us = skipped.reason.strip_suffix(" µs").and_then(|number| number.parse().ok());
        let why = if us.is_some() { String::new() } else { skipped.reason.clone() };
        Unmeasured { name: skipped.variant.clone(), us, why }
    };
    edition.skipped.iter().map(one).collect()
}
