use super::*;

fn value(text: &str) -> Value {
    Expr::parse(text)
        .unwrap()
        .eval(|name| match name {
            "a" => Some(Value::Int(7)),
            "b" => Some(Value::Int(-2)),
            "pad" => Some(Value::Bool(false)),
            "isa" => Some(Value::from("avx2")),
            _ => None,
        })
        .unwrap()
}

fn int(text: &str) -> i64 {
    match value(text) {
        Value::Int(i) => i,
        other => panic!("{text} is {other:?}"),
    }
}

#[test]
fn operators_mean_what_python_means() {
    // Each right-hand side is what CPython 3.12 prints.
    for (text, python) in [
        ("7 // -2", -4),
        ("-7 // 2", -4),
        ("7 % -2", -1),
        ("-7 % 2", 1),
        ("-2 ** 2", -4),
        ("2 ** 3 ** 2", 512),
        ("1 + 2 * 3 % 4", 3),
        ("7 & 3 == 3", 1),
        ("1 | 2 ^ 3 & 1", 3),
        ("1 << 2 + 1", 8),
        ("~5", -6),
        ("not 0 == 1", 1),
        ("1 < 2 < 3", 1),
        ("3 > 2 == 2", 1),
        ("1 < 3 < 2", 0),
        ("0 or 5", 5),
        ("3 and 4", 4),
        ("0 and 1 / 0", 0),
        ("1 or 1 / 0", 1),
        ("2 in (1, 2)", 1),
        ("2 not in [1, 2]", 0),
        ("5 if 0 else 6", 6),
        ("min(4, 2, 3)", 2),
        ("max(4, 2) + abs(-3)", 7),
        ("int(-3.7)", -3),
        ("round(2.5)", 2),
        ("ceil(7 / 2)", 4),
        ("math.floor(-0.5)", -1),
        ("gcd(12, 18)", 6),
        ("0x1F", 31),
        ("1_000", 1000),
        ("True + True", 2),
        ("a - b", 9),
        ("not pad", 1),
        ("isa == 'avx2' and isa != \"avx512\"", 1),
        ("(a > 3) * 8", 8),
        ("-a // b", 3),
    ] {
        assert_eq!(int(text), python, "{text}");
    }
    assert_eq!(value("7 / 2"), Value::Float(Real(3.5)));
    assert_eq!(value("8 / 2 % 3"), Value::Float(Real(1.0)));
    assert_eq!(value("7.5 // 2"), Value::Float(Real(3.0)));
    assert_eq!(value("-7.5 % 2"), Value::Float(Real(0.5)));
    assert_eq!(value("2 ** -1"), Value::Float(Real(0.5)));
    // 2 ** 64 leaves 63 bits and stays comparable.
    assert_eq!(int("2 ** 64 > 2 ** 63"), 1);
}

#[test]
fn an_error_points_at_its_column() {
    for (text, column, word) in [
        ("a * (b + ", 10, "missing at the end"),
        ("a && b", 3, "'and'"),
        ("a = 3", 3, "'=='"),
        ("a b", 3, "operator"),
        ("a <= $", 6, "no meaning"),
        ("foo(a)", 1, "no function 'foo'"),
        ("a in 3", 6, "list"),
        ("'abc", 1, "quote"),
        ("(a", 3, "')'"),
        ("12ab + 1", 1, "number"),
        ("abs(1, 2)", 1, "takes 1"),
        ("a if b", 7, "'else'"),
        ("", 1, "missing"),
    ] {
        let error = Expr::parse(text).unwrap_err();
        assert_eq!(error.column(), column, "{text}: {error}");
        assert!(error.reason.contains(word), "{text}: {error}");
    }
    let shown = Expr::parse("größe * , 2").unwrap_err().to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[1].chars().position(|c| c == ','), lines[2].chars().position(|c| c == '^'), "{shown}");
}

#[test]
fn names_and_kinds_are_checked_before_anything_runs() {
    let known = [("tile", ExprKind::Number), ("isa", ExprKind::Text)];
    let check = |text: &str| Expr::parse(text).unwrap().check(&known);
    assert_eq!(check("tile * 2 <= 64 and isa == 'avx2'"), Ok(ExprKind::Number));
    for (text, column, word) in [
        ("tile * block", 8, "no axis 'block': expected one of tile, isa"),
        ("tile + isa", 8, "number is needed"),
        ("1 < isa", 1, "text with a number"),
        ("isa < 'b'", 1, "no order"),
        ("isa in (1, 2)", 9, "text with a number"),
    ] {
        let error = check(text).unwrap_err();
        assert_eq!((error.column(), error.reason.contains(word)), (column, true), "{text}: {error}");
    }
}

#[test]
fn what_has_no_value_is_not_true_and_says_so() {
    let divides = Expr::parse("1 / a > 0").unwrap();
    assert!(!divides.holds(|_| Some(Value::Int(0))));
    assert!(divides.eval(|_| Some(Value::Int(0))).unwrap_err().reason.contains("divides by zero"));
    assert!(divides.eval(|_| None).unwrap_err().reason.contains("'a' has no value"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}", signs in "[-+*/%()<>=! a1.,&|~^'\"]{0,60}") {
        for text in [text, signs] {
            if let Ok(expr) = Expr::parse(&text) {
                let _ = expr.eval(|_| Some(Value::Int(i64::MAX)));
            } else if let Err(error) = Expr::parse(&text) {
                let _ = error.to_string();
            }
        }
    }
}

#[test]
fn deep_nesting_is_an_error_and_long_rows_are_fine() {
    assert!(Expr::parse(&"(".repeat(100_000)).is_err());
    assert!(Expr::parse(&"not ".repeat(100_000)).is_err());
    assert!(Expr::parse(&"-".repeat(100_000)).is_err());
    let row = vec!["a"; 900].join(" + ");
    assert_eq!(Expr::parse(&row).unwrap().eval(|_| Some(Value::Int(1))).unwrap(), Value::Int(900));
}
