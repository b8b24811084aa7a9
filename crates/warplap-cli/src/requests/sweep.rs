//! Sweeps: `m=256..4096*2` and `m=64..512+64` come in; problems that differ in one field go out.

/// The most points of one sweep.
const MOST: usize = 1000;

/// What was expected, in every sentence about a sweep.
const FORM: &str = "field=low..high*factor or field=low..high+step, for example m=256..4096*2";

/// One field over a range of whole numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sweep {
    /// The field.
    pub(crate) field: String,
    /// Its values.
    pub(crate) values: Vec<u64>,
}

impl Sweep {
    /// Reads a sweep; the sentence names the part that is wrong.
    pub(crate) fn parse(text: &str) -> Result<Sweep, String> {
        let wrong = |part: &str, expected: &str| format!("--sweep: {part}: expected {expected}");
        let form = || wrong(&format!("'{text}' is not a sweep"), FORM);
        let (field, range) = text.split_once('=').ok_or_else(form)?;
        let (low, rest) = range.split_once("..").ok_or_else(form)?;
        let at = rest.find(['*', '+']).ok_or_else(form)?;
        let (high, by) = rest.split_at(at);
        let number = |name: &str, text: &str| {
            let expected = "a whole number from 1 to 1048576";
            let parsed = text.trim().parse::<u64>().ok().filter(|v| (1..=1 << 20).contains(v));
            parsed.ok_or_else(|| wrong(&format!("{name} is '{text}'"), expected))
        };
        let (low, high, step) = (number("low", low)?, number("high", high)?, number("step", &by[1..])?);
        if field.trim().is_empty() {
            return Err(form());
        }
        if high < low {
            return Err(wrong(&format!("high is {high}"), &format!("at least low, {low}")));
        }
        let multiply = by.starts_with('*');
        if multiply && step < 2 {
            return Err(wrong(&format!("the factor is {step}"), "2 or more"));
        }
        let mut values = Vec::new();
        let mut value = low;
        while value <= high {
            if values.len() == MOST {
                return Err(wrong("the sweep is too long", &format!("at most {MOST} points")));
            }
            values.push(value);
            value = if multiply { value * step } else { value + step };
        }
        Ok(Sweep { field: field.trim().to_string(), values })
    }

    /// The problem text with the field set to each value; where the problem does not have the field, it is added.
    pub(crate) fn over(&self, problem: &str) -> Vec<String> {
        let (op, fields) = problem.split_once(':').unwrap_or(("", problem));
        let with = |value: &u64| {
            let mut set = false;
            let mut parts: Vec<String> = Vec::new();
            for part in fields.split(',').filter(|p| !p.trim().is_empty()) {
                if part.split('=').next().map(str::trim) == Some(self.field.as_str()) {
                    parts.push(format!("{}={value}", self.field));
                    set = true;
                } else {
                    parts.push(part.to_string());
                }
            }
            if !set {
                parts.push(format!("{}={value}", self.field));
            }
            if op.is_empty() { parts.join(",") } else { format!("{op}:{}", parts.join(",")) }
        };
        self.values.iter().map(with).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sweep_multiplies_or_adds() {
        assert_eq!(Sweep::parse("m=256..4096*2").unwrap().values, [256, 512, 1024, 2048, 4096]);
        assert_eq!(Sweep::parse("m=64..200+64").unwrap().values, [64, 128, 192]);
        let over = Sweep::parse("n=1..2*2").unwrap().over("gemm:m=8,n=4,k=2");
        assert_eq!(over, ["gemm:m=8,n=1,k=2", "gemm:m=8,n=2,k=2"]);
        assert_eq!(Sweep::parse("lda=9..9+1").unwrap().over("gemm:m=8"), ["gemm:m=8,lda=9"]);
    }

    #[test]
    fn a_bad_sweep_says_which_part() {
        for (text, part) in [
            ("m", "not a sweep"),
            ("m=1..9", "not a sweep"),
            ("m=0..9+1", "low is '0'"),
            ("m=9..1+1", "high is 1"),
            ("m=1..9*1", "the factor is 1"),
            ("m=1..9+x", "step is 'x'"),
            ("m=1..1048576+1", "too long"),
            ("=1..2+1", "not a sweep"),
        ] {
            let error = Sweep::parse(text).unwrap_err();
            assert!(error.contains(part) && error.contains("expected"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC{0,40}", numbers in "m=[0-9]{0,22}\\.\\.[0-9]{0,22}[*+][0-9]{0,22}") {
            for text in [text.as_str(), numbers.as_str()] {
                if let Ok(sweep) = Sweep::parse(text) {
                    prop_assert!(!sweep.values.is_empty() && sweep.values.len() <= MOST);
                    sweep.over("gemm:m=1,n=1,k=1");
                }
                let _ = warplap::any::problem(text, None);
                let _ = warplap::core::space::Config::parse(text);
                let _ = crate::units::short(text);
            }
        }

        #[test]
        fn no_field_makes_a_problem_panic(op in "gemm|attention|bsr", field in "[a-z]{1,4}", value in "\\PC{0,24}", n in any::<u64>()) {
            let _ = warplap::any::problem(&format!("{op}:m={n},n=4,k=4,{field}={value}"), None);
            let _ = warplap::any::problem(&format!("{op}:{field}={value},{field}={n}"), None);
        }
    }
}
