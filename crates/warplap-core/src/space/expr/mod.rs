//! Expressions over named values, as Python writes them: rules of a space, derived values, launch sizes, metrics.
//!
//! A text comes in, once; out goes a tree that is type-checked and evaluated. Errors point at the column.

mod error;
mod kinds;
mod number;
mod parse;
mod token;
mod tree;

pub use error::ExprError;
pub use kinds::ExprKind;
pub(crate) use number::{Num, binary, both, call, choice, compare, either, unary};
pub(crate) use tree::{Binary, Compare, ExprNode, Function, Tree, Unary};

use crate::records::config::{Real, Value};

/// An expression that was parsed.
///
/// ```
/// use warplap_core::space::{Config, Expr, Value};
/// let threads = Expr::parse("min(block_x * block_y, 1024)").unwrap();
/// let config = Config::new().with("block_x", 64).with("block_y", 4);
/// assert_eq!(threads.eval(|name| config.get(name).cloned()).unwrap(), Value::Int(256));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    text: String,
    pub(crate) tree: Tree,
}

impl Expr {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        Ok(Expr { text: text.to_string(), tree: parse::parse(text)? })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names it reads, each once, in the order of writing.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        self.tree.names(&mut |name, _| {
            if !names.contains(&name) {
                names.push(name);
            }
        });
        names
    }

    /// Checks names and kinds; `known` are the names there are.
    pub fn check<'n>(&self, known: &[(&'n str, ExprKind)]) -> Result<ExprKind, ExprError> {
        let lookup = |name: &str| known.iter().find(|k| k.0 == name).map(|k| k.1);
        let names = || match known {
            [] => "none at all".to_string(),
            _ => known.iter().map(|k: &(&'n str, ExprKind)| k.0).collect::<Vec<_>>().join(", "),
        };
        kinds::check(&self.tree, &self.text, &lookup, &names)
    }

    /// Its value where `get` gives the value of a name.
    pub fn eval(&self, get: impl Fn(&str) -> Option<Value>) -> Result<Value, ExprError> {
        let mut texts = Texts::default();
        let whole = 0..self.text.len();
        match self.walk(&self.tree, &get, &mut texts)? {
            Num::Int(i) => Ok(Value::Int(i)),
            Num::Float(x) => Ok(Value::Float(Real(x))),
            Num::Text(t) => Ok(Value::Text(texts.0[t as usize].clone())),
            Num::Undefined => {
                let reason = "it has no value here: it divides by zero or takes a root of a negative number";
                Err(ExprError::new(reason, &self.text, whole))
            }
        }
    }

    /// Whether it is true; what has no value is not.
    pub fn holds(&self, get: impl Fn(&str) -> Option<Value>) -> bool {
        let mut texts = Texts::default();
        self.walk(&self.tree, &get, &mut texts).is_ok_and(|value| value.truth() == Some(true))
    }

    fn walk(&self, tree: &Tree, get: &dyn Fn(&str) -> Option<Value>, texts: &mut Texts) -> Result<Num, ExprError> {
        let mut part = |tree: &Tree| self.walk(tree, get, texts);
        Ok(match &tree.node {
            ExprNode::Int(i) => Num::Int(*i),
            ExprNode::Float(x) => Num::Float(*x),
            ExprNode::Text(text) => texts.num(text),
            ExprNode::Name(name) => match get(name) {
                Some(value) => texts.of(&value),
                None => return Err(ExprError::new(format!("'{name}' has no value"), &self.text, tree.at.clone())),
            },
            ExprNode::Unary(operator, a) => unary(*operator, part(a)?),
            ExprNode::Binary(operator, a, b) => binary(*operator, part(a)?, part(b)?),
            ExprNode::And(a, b) => both(part(a)?, part(b)?),
            ExprNode::Or(a, b) => either(part(a)?, part(b)?),
            ExprNode::Choice { condition, yes, no } => choice(part(condition)?, part(yes)?, part(no)?),
            ExprNode::Call(function, arguments) => {
                call(*function, &arguments.iter().map(part).collect::<Result<Vec<_>, _>>()?)
            }
            ExprNode::Chain(operands, comparisons) => {
                let values = operands.iter().map(part).collect::<Result<Vec<_>, _>>()?;
                let pairs = comparisons.iter().enumerate().map(|(i, c)| compare(*c, values[i], values[i + 1]));
                pairs.reduce(both).unwrap_or(Num::Undefined)
            }
            ExprNode::Member { item, list, negated } => {
                let item = part(item)?;
                let mut result = Num::bool(false);
                for entry in list {
                    result = either(result, compare(Compare::Equal, item, part(entry)?));
                }
                if *negated { unary(Unary::Not, result) } else { result }
            }
        })
    }
}

/// Texts by number; the empty text is number 0, so that truth needs no lookup.
#[derive(Clone, Debug)]
pub(crate) struct Texts(Vec<String>);

impl Default for Texts {
    fn default() -> Self {
        Texts(vec![String::new()])
    }
}

impl Texts {
    pub(crate) fn num(&mut self, text: &str) -> Num {
        let at = self.0.iter().position(|t| t == text).unwrap_or_else(|| {
            self.0.push(text.to_string());
            self.0.len() - 1
        });
        Num::Text(at as u32)
    }

    pub(crate) fn of(&mut self, value: &Value) -> Num {
        match value {
            Value::Bool(b) => Num::bool(*b),
            Value::Int(i) => Num::Int(*i),
            Value::Float(x) => Num::Float(x.0),
            Value::Text(t) => self.num(t),
        }
    }
}

#[cfg(test)]
mod tests;
