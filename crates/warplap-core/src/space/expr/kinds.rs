//! The type check: texts are only compared with texts, and every name is known. Errors point at the column.

use std::ops::Range;

use super::error::ExprError;
use super::tree::{ExprNode, Tree};

/// What a part of an expression is before it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExprKind {
    /// A whole number, a switch or a float.
    Number,
    /// A text.
    Text,
}

/// Checks a tree written as `text`, where `lookup` knows the names and `known` lists them for the message.
pub(super) fn check(
    tree: &Tree,
    text: &str,
    lookup: &dyn Fn(&str) -> Option<ExprKind>,
    known: &dyn Fn() -> String,
) -> Result<ExprKind, ExprError> {
    let wrong = |reason: String, at: &Range<usize>| ExprError::new(reason, text, at.clone());
    let inner = |part: &Tree| check(part, text, lookup, known);
    let number = |part: &Tree| match inner(part)? {
        ExprKind::Number => Ok(()),
        ExprKind::Text => Err(wrong("a number is needed here, and this is a text".into(), &part.at)),
    };
    let numbers = |parts: &[&Tree]| parts.iter().try_for_each(|part| number(part)).map(|()| ExprKind::Number);
    match &tree.node {
        ExprNode::Int(_) | ExprNode::Float(_) => Ok(ExprKind::Number),
        ExprNode::Text(_) => Ok(ExprKind::Text),
        ExprNode::Name(name) => match lookup(name) {
            Some(kind) => Ok(kind),
            None => Err(wrong(format!("there is no axis '{name}': expected one of {}", known()), &tree.at)),
        },
        ExprNode::Unary(super::tree::Unary::Not, a) => inner(a).map(|_| ExprKind::Number),
        ExprNode::Unary(_, a) => numbers(&[a]),
        ExprNode::Binary(_, a, b) => numbers(&[a, b]),
        ExprNode::Call(_, arguments) => numbers(&arguments.iter().collect::<Vec<_>>()),
        ExprNode::Chain(operands, comparisons) => {
            let kinds = operands.iter().map(inner).collect::<Result<Vec<_>, _>>()?;
            for (i, comparison) in comparisons.iter().enumerate() {
                let at = operands[i].at.start..operands[i + 1].at.end;
                if kinds[i] != kinds[i + 1] {
                    return Err(wrong("this compares a text with a number".into(), &at));
                }
                if kinds[i] == ExprKind::Text && comparison.orders() {
                    return Err(wrong("texts have no order: use == or !=".into(), &at));
                }
            }
            Ok(ExprKind::Number)
        }
        ExprNode::Member { item, list, .. } => {
            let kind = inner(item)?;
            for part in list {
                if inner(part)? != kind {
                    return Err(wrong("this compares a text with a number".into(), &part.at));
                }
            }
            Ok(ExprKind::Number)
        }
        ExprNode::And(a, b) | ExprNode::Or(a, b) => {
            let (a, b) = (inner(a)?, inner(b)?);
            Ok(if a == ExprKind::Text && b == ExprKind::Text { ExprKind::Text } else { ExprKind::Number })
        }
        ExprNode::Choice { condition, yes, no } => {
            inner(condition)?;
            let kind = inner(yes)?;
            match inner(no)? {
                other if other == kind => Ok(kind),
                _ => Err(wrong("both sides of 'if … else' should be of one kind".into(), &tree.at)),
            }
        }
    }
}
