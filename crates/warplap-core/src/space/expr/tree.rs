//! The tree of an expression: what the parser gives and the compiler takes.

use std::ops::Range;

/// One part of an expression and the bytes it was written in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tree {
    pub(crate) node: ExprNode,
    pub(crate) at: Range<usize>,
}

/// What a part of an expression is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExprNode {
    Int(i64),
    Float(f64),
    Text(String),
    Name(String),
    /// `-a`, `+a`, `~a`, `not a`.
    Unary(Unary, Box<Tree>),
    /// Arithmetic on two operands.
    Binary(Binary, Box<Tree>, Box<Tree>),
    /// `a < b <= c`: one operand more than comparisons.
    Chain(Vec<Tree>, Vec<Compare>),
    /// `a in (b, c)`, or its opposite.
    Member {
        item: Box<Tree>,
        list: Vec<Tree>,
        negated: bool,
    },
    And(Box<Tree>, Box<Tree>),
    Or(Box<Tree>, Box<Tree>),
    /// `a if condition else b`.
    Choice {
        condition: Box<Tree>,
        yes: Box<Tree>,
        no: Box<Tree>,
    },
    Call(Function, Vec<Tree>),
}

/// Operators with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unary {
    Plus,
    Minus,
    Invert,
    Not,
}

/// Arithmetic with two operands, as Python has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

impl Binary {
    /// How it is written.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Subtract => "-",
            Binary::Multiply => "*",
            Binary::Divide => "/",
            Binary::FloorDivide => "//",
            Binary::Remainder => "%",
            Binary::Power => "**",
            Binary::BitAnd => "&",
            Binary::BitOr => "|",
            Binary::BitXor => "^",
            Binary::ShiftLeft => "<<",
            Binary::ShiftRight => ">>",
        }
    }
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Compare {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    Unequal,
}

impl Compare {
    /// Whether it asks for an order, not only for sameness.
    pub(crate) fn orders(self) -> bool {
        !matches!(self, Compare::Equal | Compare::Unequal)
    }
}

/// Functions that may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Min,
    Max,
    Abs,
    Int,
    Float,
    Bool,
    Round,
    Pow,
    Ceil,
    Floor,
    Sqrt,
    Log2,
    Gcd,
}

/// Every function with its name and how many arguments it takes at least and at most.
pub(crate) const FUNCTIONS: [(&str, Function, usize, usize); 13] = [
    ("min", Function::Min, 1, usize::MAX),
    ("max", Function::Max, 1, usize::MAX),
    ("abs", Function::Abs, 1, 1),
    ("int", Function::Int, 1, 1),
    ("float", Function::Float, 1, 1),
    ("bool", Function::Bool, 1, 1),
    ("round", Function::Round, 1, 1),
    ("pow", Function::Pow, 2, 2),
    ("ceil", Function::Ceil, 1, 1),
    ("floor", Function::Floor, 1, 1),
    ("sqrt", Function::Sqrt, 1, 1),
    ("log2", Function::Log2, 1, 1),
    ("gcd", Function::Gcd, 2, 2),
];

impl Tree {
    /// The parts directly below.
    pub(crate) fn parts(&self) -> Vec<&Tree> {
        match &self.node {
            ExprNode::Int(_) | ExprNode::Float(_) | ExprNode::Text(_) | ExprNode::Name(_) => Vec::new(),
            ExprNode::Unary(_, a) => vec![a],
            ExprNode::Binary(_, a, b) | ExprNode::And(a, b) | ExprNode::Or(a, b) => vec![a, b],
            ExprNode::Chain(all, _) | ExprNode::Call(_, all) => all.iter().collect(),
            ExprNode::Member { item, list, .. } => std::iter::once(&**item).chain(list).collect(),
            ExprNode::Choice { condition, yes, no } => vec![condition, yes, no],
        }
    }

    /// Calls `f` with every name in it and where it stands, in the order of writing.
    pub(crate) fn names<'t>(&'t self, f: &mut dyn FnMut(&'t str, &Range<usize>)) {
        if let ExprNode::Name(name) = &self.node {
            f(name, &self.at);
        }
        self.parts().into_iter().for_each(|part| part.names(f));
    }
}
