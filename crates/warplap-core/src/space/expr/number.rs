//! The values of expressions and their arithmetic, with Python's meaning: `/` is true division, `//` and `%` follow the
//! divisor's sign, `and`/`or` give an operand. A whole number that leaves 63 bits goes on as a float.

use std::cmp::Ordering;

use super::tree::{Binary, Compare, Function, Unary};

/// What an expression can be at run time. `Undefined` is what Python would raise on (a division by zero): it spreads,
/// unless `and`, `or` or a choice never looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Num {
    Int(i64),
    Float(f64),
    /// A text by its number in the interner.
    Text(u32),
    Undefined,
}

use Num::{Float, Int, Text, Undefined};

impl Num {
    pub(crate) fn bool(b: bool) -> Num {
        Int(i64::from(b))
    }

    /// Python's truth; `None` where there is no value.
    pub(crate) fn truth(self) -> Option<bool> {
        match self {
            Int(i) => Some(i != 0),
            Float(x) => Some(x != 0.0),
            // The empty text has the number 0.
            Text(t) => Some(t != 0),
            Undefined => None,
        }
    }

    fn float(self) -> Option<f64> {
        match self {
            Int(i) => Some(i as f64),
            Float(x) => Some(x),
            Text(_) | Undefined => None,
        }
    }

    /// Its bits and its kind, to tell states apart.
    pub(crate) fn bits(self) -> u64 {
        match self {
            Int(i) => i as u64,
            // Shifted so that small whole numbers and floats rarely meet; those that do are told apart by their kind.
            Float(x) => x.to_bits(),
            Text(t) => u64::from(t),
            Undefined => u64::MAX,
        }
    }

    /// 0 to 3, by kind.
    pub(crate) fn kind(self) -> u8 {
        match self {
            Int(_) => 0,
            Float(_) => 1,
            Text(_) => 2,
            Undefined => 3,
        }
    }
}

fn real(x: f64) -> Num {
    if x.is_nan() { Undefined } else { Float(x) }
}

/// A float that is whole, as a whole number.
fn whole(x: f64) -> Num {
    match x {
        x if x.is_nan() => Undefined,
        x if x.abs() < 9.0e18 => Int(x as i64),
        x => Float(x),
    }
}

/// Python's `//` on whole numbers.
fn floor_divide(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

/// Python's `%` on whole numbers: the sign is the divisor's.
fn remainder(a: i64, b: i64) -> Option<i64> {
    let r = a.checked_rem(b)?;
    Some(if r != 0 && (r < 0) != (b < 0) { r + b } else { r })
}

fn float_remainder(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
}

/// Arithmetic on two operands.
pub(crate) fn binary(operator: Binary, a: Num, b: Num) -> Num {
    if let (Int(x), Int(y)) = (a, b) {
        let exact = match operator {
            Binary::Add => x.checked_add(y),
            Binary::Subtract => x.checked_sub(y),
            Binary::Multiply => x.checked_mul(y),
            Binary::FloorDivide if y != 0 => floor_divide(x, y),
            Binary::Remainder if y != 0 => remainder(x, y),
            Binary::Power if (0..64).contains(&y) => x.checked_pow(y as u32),
            Binary::BitAnd => Some(x & y),
            Binary::BitOr => Some(x | y),
            Binary::BitXor => Some(x ^ y),
            Binary::ShiftLeft if (0..62).contains(&y) => x.checked_mul(1 << y),
            Binary::ShiftRight if y >= 0 => Some(x >> y.min(63)),
            _ => None,
        };
        if let Some(exact) = exact {
            return Int(exact);
        }
    }
    let (Some(x), Some(y)) = (a.float(), b.float()) else { return Undefined };
    match operator {
        Binary::Add => real(x + y),
        Binary::Subtract => real(x - y),
        Binary::Multiply => real(x * y),
        Binary::Divide | Binary::FloorDivide | Binary::Remainder if y == 0.0 => Undefined,
        Binary::Divide => real(x / y),
        Binary::FloorDivide => real((x - float_remainder(x, y)) / y),
        Binary::Remainder => real(float_remainder(x, y)),
        Binary::Power if x == 0.0 && y < 0.0 => Undefined,
        Binary::Power => real(x.powf(y)),
        Binary::ShiftLeft if y >= 0.0 => real(x * y.exp2()),
        _ => Undefined,
    }
}

/// A comparison. Texts are only equal or not; a text never equals a number.
pub(crate) fn compare(operator: Compare, a: Num, b: Num) -> Num {
    let order = match (a, b) {
        (Int(x), Int(y)) => Some(x.cmp(&y)),
        (Text(x), Text(y)) if !operator.orders() => Some(if x == y { Ordering::Equal } else { Ordering::Less }),
        (Undefined, _) | (_, Undefined) => return Undefined,
        (Text(_), _) | (_, Text(_)) if operator.orders() => return Undefined,
        (Text(_), _) | (_, Text(_)) => Some(Ordering::Less),
        _ => a.float().zip(b.float()).and_then(|(x, y)| x.partial_cmp(&y)),
    };
    let Some(order) = order else { return Undefined };
    Num::bool(match operator {
        Compare::Less => order.is_lt(),
        Compare::LessEqual => order.is_le(),
        Compare::Greater => order.is_gt(),
        Compare::GreaterEqual => order.is_ge(),
        Compare::Equal => order.is_eq(),
        Compare::Unequal => order.is_ne(),
    })
}

/// Signs, inversion, negation.
pub(crate) fn unary(operator: Unary, a: Num) -> Num {
    match (operator, a) {
        (Unary::Not, a) => a.truth().map_or(Undefined, |t| Num::bool(!t)),
        (Unary::Plus, Int(_) | Float(_)) => a,
        (Unary::Minus, Int(i)) => i.checked_neg().map_or(Float(-(i as f64)), Int),
        (Unary::Minus, Float(x)) => Float(-x),
        (Unary::Invert, Int(i)) => Int(!i),
        _ => Undefined,
    }
}

/// `a and b`: the right operand counts only where the left one is true.
pub(crate) fn both(a: Num, b: Num) -> Num {
    match a.truth() {
        None => Undefined,
        Some(false) => a,
        Some(true) => b,
    }
}

/// `a or b`: the right operand counts only where the left one is false.
pub(crate) fn either(a: Num, b: Num) -> Num {
    match a.truth() {
        None => Undefined,
        Some(true) => a,
        Some(false) => b,
    }
}

/// `yes if condition else no`.
pub(crate) fn choice(condition: Num, yes: Num, no: Num) -> Num {
    match condition.truth() {
        None => Undefined,
        Some(true) => yes,
        Some(false) => no,
    }
}

/// A function of its arguments.
pub(crate) fn call(function: Function, arguments: &[Num]) -> Num {
    let first = arguments.first().copied().unwrap_or(Undefined);
    let second = arguments.get(1).copied().unwrap_or(Undefined);
    match (function, first) {
        (Function::Min | Function::Max, _) => {
            let wanted = if function == Function::Min { Compare::Less } else { Compare::Greater };
            arguments.iter().copied().fold(first, |best, next| match compare(wanted, next, best).truth() {
                None => Undefined,
                Some(true) => next,
                Some(false) => best,
            })
        }
        (Function::Pow, _) => binary(Binary::Power, first, second),
        (Function::Gcd, Int(a)) => match second {
            Int(b) => {
                let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
                while b != 0 {
                    (a, b) = (b, a % b);
                }
                i64::try_from(a).map_or(Undefined, Int)
            }
            _ => Undefined,
        },
        (Function::Bool, a) => a.truth().map_or(Undefined, Num::bool),
        (Function::Abs, Int(i)) => i.checked_abs().map_or(Float((i as f64).abs()), Int),
        (Function::Abs, Float(x)) => Float(x.abs()),
        (Function::Int | Function::Round | Function::Ceil | Function::Floor, Int(_)) => first,
        (Function::Int, Float(x)) => whole(x.trunc()),
        // Python rounds halves to the even neighbour.
        (Function::Round, Float(x)) => whole(x.round_ties_even()),
        (Function::Ceil, Float(x)) => whole(x.ceil()),
        (Function::Floor, Float(x)) => whole(x.floor()),
        (Function::Float, a) => a.float().map_or(Undefined, Float),
        (Function::Sqrt, a) => a.float().filter(|x| *x >= 0.0).map_or(Undefined, |x| real(x.sqrt())),
        (Function::Log2, a) => a.float().filter(|x| *x > 0.0).map_or(Undefined, |x| real(x.log2())),
        _ => Undefined,
    }
}
