//! A page about decided graphs: what was found comes in as plain values (or JSON); one page of HTML goes out, with each
//! graph drawn and what every choice took.
//!
//! The page loads nothing and runs no script. It knows no device and no clock: graphs from Rust and from Python look the
//! same. Whatever is given is drawn: reads and covers that name nothing are left out.
//!
//! ```
//! use warplap_report::graph_page::Page;
//!
//! let text = r#"{"title": "A layer", "graphs": [{
//!     "title": "Graph 1", "how": "raced", "plain": "inductor",
//!     "nodes": [{"name": "x", "kind": "input"}, {"name": "y", "does": "linear", "reads": [0], "cover": 0},
//!               {"name": "z", "does": "gelu", "reads": [1], "cover": 0, "is_seen": true}],
//!     "covers": [{"name": "linear_gelu"}],
//!     "lanes": [{"name": "linear_gelu", "us": 812.4, "is_taken": true}, {"name": "inductor", "us": 931.7}]}]}"#;
//! let page: Page = serde_json::from_str(text)?;
//! assert!(page.markup().contains("slower than the winner by 15 %"));
//! # Ok::<(), serde_json::Error>(())
//! ```

mod drawing;
mod layout;
mod markup;
mod page_rows;

use serde::{Deserialize, Serialize};

/// What a page tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Page {
    /// Its heading.
    pub title: String,
    /// The graphs, in their order on the page.
    pub graphs: Vec<Decided>,
}

/// A graph, how it was decided, and what raced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Decided {
    /// Its heading.
    pub title: String,
    /// What the store finds it by.
    pub key: String,
    /// In words: raced, from the store, told by its parts, or why nothing was measured.
    pub how: String,
    /// Who runs the nodes that nothing covers.
    pub plain: String,
    /// The nodes. They read each other by their places in this list.
    pub nodes: Vec<Node>,
    /// What one launch computes, by the places that nodes name.
    pub covers: Vec<Cover>,
    /// The choices that raced.
    pub lanes: Vec<Lane>,
    /// Choices that did not race.
    pub unmeasured: Vec<Unmeasured>,
}

/// A node of a graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Node {
    /// What its value is called.
    pub name: String,
    /// What it computes, in a word.
    pub does: String,
    /// The nodes that it reads.
    pub reads: Vec<usize>,
    /// The cover that computes it.
    pub cover: Option<usize>,
    /// What sort of node it is.
    pub kind: Kind,
    /// Whether the graph gives it to its caller.
    pub is_seen: bool,
}

/// What sort of node it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It computes something.
    #[default]
    Work,
    /// It comes from outside.
    Input,
    /// It looks at memory in another way and computes nothing.
    View,
}

/// What one launch computes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cover {
    /// Its name; covers of one name have one colour.
    pub name: String,
}

/// A choice that raced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// What one run of it takes.
    pub us: Option<f64>,
    /// How many times the best it takes, where only that is known.
    pub times: Option<f64>,
    /// Whether it is what runs.
    pub is_taken: bool,
    /// Whether the race saw no difference between it and the winner.
    pub is_tie: bool,
    /// Whether its time was told by its parts and not measured.
    #[serde(rename = "is_told")]
    pub is_predicted: bool,
    /// Why it left, or what else is to be said.
    pub why: String,
}

/// A choice that did not race.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Unmeasured {
    /// Its name.
    pub name: String,
    /// What it takes by its parts.
    pub us: Option<f64>,
    /// Why it did not race, where that is not its time.
    pub why: String,
}

impl Page {
    /// The page, as HTML.
    pub fn markup(&self) -> String {
        markup::page(self)
    }
}

impl Decided {
    /// Nodes that a node reads: each once, in order, without what is not there.
    fn reads(&self, node: usize) -> Vec<usize> {
        let mut reads = self.nodes[node].reads.clone();
        reads.retain(|read| *read < self.nodes.len() && *read != node);
        reads.sort_unstable();
        reads.dedup();
        reads
    }

    /// The cover of a node, where there is one of this number.
    fn cover(&self, node: usize) -> Option<usize> {
        self.nodes[node].cover.filter(|cover| *cover < self.covers.len())
    }
}

#[cfg(test)]
mod tests;
