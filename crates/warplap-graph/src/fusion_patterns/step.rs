//! A step: one node of a graph as patterns see it.

use warplap_ops::gemm::{Activation, Join, Layout};
use warplap_ops::norm::Kind;

/// What a step does. What it reads, by places, stands behind it; what may be left out is marked with `?`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Does {
    /// x · w + bias?: w lies as `Layout::Col` says for `linear` (n×k in memory), k×n for `matmul`.
    Product(Layout),
    /// act(a), joined with b?.
    Element {
        /// What is done to a.
        act: Activation,
        /// How b comes to it.
        join: Join,
    },
    /// a plus b, which spreads over a and is of its type.
    Spread {
        /// Whether b is as long as one row of a.
        is_line: bool,
    },
    /// x times a number.
    Scale(f64),
    /// Elements of x are dropped by chance, so many of one.
    Dropout(f64),
    /// The first (0) or second (1) half of x along its rows.
    Half(usize),
    /// A norm of x's rows, with weight? and bias?.
    Norm {
        /// What rows are divided by.
        kind: Kind,
        /// What is added under the root.
        eps: f64,
    },
    /// A softmax of the rows of x times a number, plus mask?.
    Softmax {
        /// The number.
        scale: f64,
    },
    /// Products of matrices of four dimensions: a and b, of one batch and as many heads.
    HeadProduct,
    /// x of four dimensions, whose last two change places.
    Turned,
    /// Attention by its name.
    Attention,
    /// Heads of x and k? are turned by tables of cosines and sines, at positions?, after bias? is added.
    Rope {
        /// Who have another one are not turned together.
        form: u64,
    },
    /// The losses of rows of logits by labels.
    Loss,
    /// Something else.
    Other,
}

impl Does {
    /// By a word, and a number where the kind has one; `None` for a word that says nothing.
    pub fn named(word: &str, number: f64) -> Option<Self> {
        Some(match word {
            "linear" => Does::Product(Layout::Col),
            "add" => Does::Element { act: Activation::None, join: Join::Add },
            "mul" => Does::Element { act: Activation::None, join: Join::Mul },
            "spread" => Does::Spread { is_line: false },
            "line" => Does::Spread { is_line: true },
            "scale" => Does::Scale(number),
            "dropout" => Does::Dropout(number),
            "first_half" => Does::Half(0),
            "second_half" => Does::Half(1),
            "rms_norm" => Does::Norm { kind: Kind::Rms, eps: number },
            "layer_norm" => Does::Norm { kind: Kind::Layer, eps: number },
            "softmax" => Does::Softmax { scale: 1.0 },
            "head_product" => Does::HeadProduct,
            "turned" => Does::Turned,
            "attention" => Does::Attention,
            "rope" => Does::Rope { form: number as u64 },
            "loss" => Does::Loss,
            "other" => Does::Other,
            act => Does::Element { act: act.parse().ok()?, join: Join::None },
        })
    }
}

/// One node of a graph.
#[derive(Clone, Debug)]
pub struct Step {
    /// What it does.
    pub does: Does,
    /// The values it reads, by their places.
    pub reads: Vec<Option<usize>>,
    /// The values it gives.
    pub outputs: Vec<usize>,
    /// Columns of what it gives, or a number that stands for so many.
    pub columns: u64,
    /// Columns of what it reads first, or a number that stands for so many.
    pub read_columns: u64,
    /// Steps that this one stands for, too, where it is written out in several.
    pub includes: Vec<usize>,
}

impl Step {
    /// The values it reads.
    pub fn values(&self) -> impl Iterator<Item = usize> {
        self.reads.iter().flatten().copied()
    }
}
