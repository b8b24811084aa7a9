//! A Rule: a constraint between axes, with the text a person reads.

use std::fmt;
use std::sync::Arc;

use super::expr::{Expr, ExprError};
use crate::prove::panics::caught;
use crate::records::config::Config;

type Holds = Arc<dyn Fn(&Config) -> bool + Send + Sync>;

#[derive(Clone)]
enum Test {
    Expr(Arc<Expr>),
    Function(Holds),
}

/// A constraint between axes. It names the axes it reads, so that enumeration can ask it as early as possible.
#[derive(Clone)]
pub struct Rule {
    text: String,
    axes: Vec<String>,
    test: Test,
}

impl Rule {
    /// A rule with its text, the axes it reads, and the test itself.
    pub fn on(text: &str, axes: &[&str], holds: impl Fn(&Config) -> bool + Send + Sync + 'static) -> Self {
        let axes = axes.iter().map(ToString::to_string).collect();
        Rule { text: text.into(), axes, test: Test::Function(Arc::new(holds)) }
    }

    /// A rule written as an expression, as Python writes it: `a * b <= 1024 and (k % c == 0 or not pad)`.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        let expr = Expr::parse(text)?;
        let axes = expr.names().into_iter().map(ToString::to_string).collect();
        Ok(Rule { text: text.trim().into(), axes, test: Test::Expr(Arc::new(expr)) })
    }

    /// Whether a Config that sets all of this rule's axes obeys it. A rule that panics over one does not hold, nor does
    /// one that has no value there (a division by zero).
    pub fn holds(&self, config: &Config) -> bool {
        match &self.test {
            Test::Expr(expr) => expr.holds(|name| config.get(name).cloned()),
            Test::Function(holds) => caught(|| holds(config)).unwrap_or(false),
        }
    }

    /// The axes and derived values it reads.
    pub fn axes(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().map(String::as_str)
    }

    /// The expression, where it is one.
    pub fn expr(&self) -> Option<&Expr> {
        match &self.test {
            Test::Expr(expr) => Some(expr),
            Test::Function(_) => None,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({})", self.text)
    }
}
