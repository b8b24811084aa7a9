//! A launch: what a match does in the place of its steps, by the values it reads.

use warplap_ops::gemm::{Activation, Join, Layout};
use warplap_ops::norm::Kind;

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The step whose sizes it has.
    pub of: usize,
    /// What it does.
    pub fused: LaunchKind,
    /// The values it writes.
    pub gives: Vec<usize>,
}

/// What a launch does, and the values it reads.
#[derive(Clone, Debug, PartialEq)]
pub enum LaunchKind {
    /// A product with what comes before and after it.
    Product(ProductLaunch),
    /// act(a), joined with b.
    Element {
        /// What is done to a.
        act: Activation,
        /// How b comes to it.
        join: Join,
        /// The one that is activated.
        a: usize,
        /// The other one.
        b: usize,
    },
    /// A norm with what comes before it.
    Norm(NormLaunch),
    /// A softmax of rows times a number, plus a mask.
    Softmax {
        /// The rows.
        x: usize,
        /// What is added.
        mask: Option<usize>,
        /// The number.
        scale: f64,
    },
    /// Attention, written out before.
    Attention {
        /// Queries, keys and values.
        qkv: [usize; 3],
        /// What is added to scores.
        mask: Option<usize>,
        /// What scores are multiplied with.
        scale: f64,
    },
    /// Its own turn, and what comes with it.
    Rope {
        /// Another turn by the same tables, which is done first.
        first: Option<usize>,
        /// What is added before the turn.
        bias: Option<usize>,
    },
    /// The losses of a projection.
    ProjectedLoss {
        /// The step that gives the losses.
        loss: usize,
        /// The rows that are projected.
        x: usize,
        /// What they are multiplied with.
        w: usize,
        /// What is added.
        bias: Option<usize>,
    },
}

/// A product with what comes before and after it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductLaunch {
    /// How w lies.
    pub layout: Layout,
    /// The rows that are multiplied.
    pub x: usize,
    /// What they are multiplied with.
    pub w: usize,
    /// What is added to columns.
    pub bias: Option<usize>,
    /// What is done then.
    pub act: Activation,
    /// What is added or multiplied then.
    pub joined: Option<(Join, usize)>,
    /// What it lets through, where it is the first of a pair.
    pub second: Option<Second>,
    /// What is done to x before.
    pub front: Option<Front>,
}

/// The other product of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Second {
    /// It has a second factor of its own.
    Weight(usize),
    /// Both are halves of one product; the activated one is its first (0) or second (1).
    Half(usize),
}

/// An RMSNorm in front of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Front {
    /// What is added under the root.
    pub eps: f64,
    /// What its columns are multiplied with.
    pub gain: Option<usize>,
}

/// A norm with what comes before it.
#[derive(Clone, Debug, PartialEq)]
pub struct NormLaunch {
    /// What rows are divided by.
    pub kind: Kind,
    /// What is added under the root.
    pub eps: f64,
    /// The rows.
    pub x: usize,
    /// What columns are multiplied with.
    pub weight: Option<usize>,
    /// What is added to them then.
    pub bias: Option<usize>,
    /// What is added to x.
    pub residual: Option<usize>,
    /// What is added to columns of x before all else.
    pub before: Option<usize>,
    /// The share of its elements that are dropped then.
    pub dropout: f64,
    /// Whether what the norm is of is written too.
    pub writes_sum: bool,
}
