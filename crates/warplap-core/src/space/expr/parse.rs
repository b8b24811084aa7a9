//! From tokens to a tree, with Python's precedence: `or`, `and`, `not`, comparisons (chained), `|`, `^`, `&`, shifts,
//! sums, products, signs, powers.

use std::ops::Range;

use super::error::ExprError;
use super::token::{Token, tokens};
use super::tree::{Binary, Compare, ExprNode, FUNCTIONS, Tree, Unary};

/// Brackets and operators may stand this deep in each other: the tree is walked by recursion.
const DEEPEST: usize = 96;

/// Reads a whole expression.
pub(super) fn parse(text: &str) -> Result<Tree, ExprError> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    let tree = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(tree),
        _ => Err(parser.wrong("the expression should have ended here; is an operator missing?")),
    }
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(Token, Range<usize>)>,
    next: usize,
    depth: usize,
}

type Parsed = Result<Tree, ExprError>;

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next.min(self.tokens.len() - 1)].0
    }

    fn at(&self) -> Range<usize> {
        self.tokens[self.next.min(self.tokens.len() - 1)].1.clone()
    }

    fn wrong(&self, reason: impl Into<String>) -> ExprError {
        ExprError::new(reason, self.text, self.at())
    }

    fn sign(&mut self, sign: &str) -> bool {
        let result = matches!(self.peek(), Token::Sign(s) if *s == sign);
        self.next += usize::from(result);
        result
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(n) if n == word)
    }

    fn word(&mut self, word: &str) -> bool {
        let result = self.is_word(word);
        self.next += usize::from(result);
        result
    }

    /// One level deeper; hostile texts end in an error, not in a spent stack.
    fn deeper(&mut self, inner: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.depth >= DEEPEST {
            return Err(self.wrong("the expression is nested too deeply"));
        }
        self.depth += 1;
        let tree = inner(self);
        self.depth -= 1;
        tree
    }

    fn expression(&mut self) -> Parsed {
        self.deeper(|p| {
            let yes = p.either()?;
            if !p.word("if") {
                return Ok(yes);
            }
            let condition = p.either()?;
            if !p.word("else") {
                return Err(p.wrong("'else' is missing after 'if'"));
            }
            let no = p.expression()?;
            let at = yes.at.start..no.at.end;
            let [condition, yes, no] = [condition, yes, no].map(Box::new);
            Ok(Tree { node: ExprNode::Choice { condition, yes, no }, at })
        })
    }

    fn either(&mut self) -> Parsed {
        let mut left = self.both()?;
        let mut count = 0;
        while self.word("or") {
            count += 1;
            self.bounded(count)?;
            let right = self.both()?;
            let at = left.at.start..right.at.end;
            left = Tree { node: ExprNode::Or(Box::new(left), Box::new(right)), at };
        }
        Ok(left)
    }

    fn both(&mut self) -> Parsed {
        let mut left = self.negation()?;
        let mut count = 0;
        while self.word("and") {
            count += 1;
            self.bounded(count)?;
            let right = self.negation()?;
            let at = left.at.start..right.at.end;
            left = Tree { node: ExprNode::And(Box::new(left), Box::new(right)), at };
        }
        Ok(left)
    }

    /// A row of one operator is a tree as deep as the row is long.
    fn bounded(&self, count: usize) -> Result<(), ExprError> {
        if count > 1000 { Err(self.wrong("the expression is too long")) } else { Ok(()) }
    }

    fn negation(&mut self) -> Parsed {
        let at = self.at();
        if !self.word("not") {
            return self.comparison();
        }
        let inner = self.deeper(Self::negation)?;
        let at = at.start..inner.at.end;
        Ok(Tree { node: ExprNode::Unary(Unary::Not, Box::new(inner)), at })
    }

    fn comparison(&mut self) -> Parsed {
        let first = self.arithmetic(0)?;
        let start = first.at.start;
        let (mut operands, mut comparisons) = (vec![first], Vec::new());
        loop {
            let compare = match self.peek() {
                Token::Sign("<") => Compare::Less,
                Token::Sign("<=") => Compare::LessEqual,
                Token::Sign(">") => Compare::Greater,
                Token::Sign(">=") => Compare::GreaterEqual,
                Token::Sign("==") => Compare::Equal,
                Token::Sign("!=") => Compare::Unequal,
                Token::Name(n) if n == "in" || n == "not" => return self.member(operands),
                _ => break,
            };
            self.next += 1;
            operands.push(self.arithmetic(0)?);
            comparisons.push(compare);
        }
        let end = operands.last().map_or(start, |o| o.at.end);
        match operands.len() {
            1 => Ok(operands.remove(0)),
            _ => Ok(Tree { node: ExprNode::Chain(operands, comparisons), at: start..end }),
        }
    }

    fn member(&mut self, mut operands: Vec<Tree>) -> Parsed {
        let negated = self.word("not");
        if !self.word("in") {
            return Err(self.wrong("'in' is missing after 'not'"));
        }
        if operands.len() > 1 {
            return Err(self.wrong("'in' cannot be chained with other comparisons: use brackets and 'and'"));
        }
        let item = operands.remove(0);
        let close = match () {
            () if self.sign("(") => ")",
            () if self.sign("[") => "]",
            () => return Err(self.wrong("'in' needs a list here, such as (1, 2, 4)")),
        };
        let list = self.list(close)?;
        let at = item.at.start..self.tokens[self.next - 1].1.end;
        Ok(Tree { node: ExprNode::Member { item: Box::new(item), list, negated }, at })
    }

    fn list(&mut self, close: &str) -> Result<Vec<Tree>, ExprError> {
        let mut list = Vec::new();
        while !self.sign(close) {
            list.push(self.expression()?);
            if !self.sign(",") && !matches!(self.peek(), Token::Sign(s) if *s == close) {
                return Err(self.wrong(format!("',' or '{close}' is missing here")));
            }
        }
        Ok(list)
    }

    /// Left-associative operators, the loosest first.
    fn arithmetic(&mut self, level: usize) -> Parsed {
        const LEVELS: [&[Binary]; 6] = [
            &[Binary::BitOr],
            &[Binary::BitXor],
            &[Binary::BitAnd],
            &[Binary::ShiftLeft, Binary::ShiftRight],
            &[Binary::Add, Binary::Subtract],
            &[Binary::Multiply, Binary::Divide, Binary::FloorDivide, Binary::Remainder],
        ];
        let Some(operators) = LEVELS.get(level) else {
            return self.signed();
        };
        let mut left = self.arithmetic(level + 1)?;
        let mut count = 0;
        while let Some(operator) = operators.iter().copied().find(|o| self.sign(o.sign())) {
            count += 1;
            self.bounded(count)?;
            let right = self.arithmetic(level + 1)?;
            let at = left.at.start..right.at.end;
            left = Tree { node: ExprNode::Binary(operator, Box::new(left), Box::new(right)), at };
        }
        Ok(left)
    }

    fn signed(&mut self) -> Parsed {
        let at = self.at();
        let operator = match () {
            () if self.sign("-") => Unary::Minus,
            () if self.sign("+") => Unary::Plus,
            () if self.sign("~") => Unary::Invert,
            () => return self.power(),
        };
        let inner = self.deeper(Self::signed)?;
        let at = at.start..inner.at.end;
        Ok(Tree { node: ExprNode::Unary(operator, Box::new(inner)), at })
    }

    fn power(&mut self) -> Parsed {
        let left = self.atom()?;
        if !self.sign("**") {
            return Ok(left);
        }
        let right = self.deeper(Self::signed)?;
        let at = left.at.start..right.at.end;
        Ok(Tree { node: ExprNode::Binary(Binary::Power, Box::new(left), Box::new(right)), at })
    }

    fn atom(&mut self) -> Parsed {
        let at = self.at();
        let token = self.peek().clone();
        let node = match token {
            Token::Int(i) => ExprNode::Int(i),
            Token::Float(x) => ExprNode::Float(x),
            Token::Text(t) => ExprNode::Text(t),
            Token::Name(name) => match name.as_str() {
                "True" | "true" => ExprNode::Int(1),
                "False" | "false" => ExprNode::Int(0),
                "and" | "or" | "in" | "if" | "else" | "not" => {
                    return Err(self.wrong(format!("a value is missing before '{name}'")));
                }
                "lambda" => return Err(self.wrong("a rule is an expression, not a lambda: write its body alone")),
                _ => {
                    self.next += 1;
                    return if self.sign("(") {
                        self.call(&name, at)
                    } else {
                        Ok(Tree { node: ExprNode::Name(name), at })
                    };
                }
            },
            Token::Sign("(") => {
                self.next += 1;
                let inner = self.expression()?;
                if !self.sign(")") {
                    return Err(self.wrong("')' is missing here"));
                }
                return Ok(Tree { at: at.start..self.tokens[self.next - 1].1.end, ..inner });
            }
            Token::End => return Err(self.wrong("a value is missing at the end")),
            Token::Sign(s) => return Err(self.wrong(format!("a value is missing before '{s}'"))),
        };
        self.next += 1;
        Ok(Tree { node, at })
    }

    fn call(&mut self, name: &str, at: Range<usize>) -> Parsed {
        let known = || FUNCTIONS.map(|f| f.0).join(", ");
        let (_, function, least, most) = FUNCTIONS.into_iter().find(|f| f.0 == name).ok_or_else(|| {
            ExprError::new(format!("there is no function '{name}': expected one of {}", known()), self.text, at.clone())
        })?;
        let arguments = self.list(")")?;
        let at = at.start..self.tokens[self.next - 1].1.end;
        if arguments.len() < least || arguments.len() > most {
            let reason = format!("'{name}' takes {least} arguments, not {}", arguments.len());
            return Err(ExprError::new(reason, self.text, at));
        }
        Ok(Tree { node: ExprNode::Call(function, arguments), at })
    }
}
