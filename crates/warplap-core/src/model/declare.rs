//! Problems declared field by field: [`problem!`](crate::problem!) takes each field once, with its default, what it may
//! be and what the key keeps of it, and gives the struct, its text form, its key and the table that docs and programs
//! show. [`words!`](crate::words!) makes an enum of a closed list of words.
//!
//! A default may be said by fields that stand before it. What one field says of another is checked by
//! [`Problem::check`](crate::problem::Problem::check).

use std::fmt::Display;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::model::dtype::DType;
use crate::model::fields::{FieldReader, Fields, MAX_SIZE, ProblemError};

/// A closed list of words: what [`words!`](crate::words!) makes.
pub trait Words: Copy + 'static {
    /// All there are.
    const ALL: &'static [Self];
    /// What a message says of them: `one of a, b, c`.
    const SENTENCE: &'static str;
}

/// A number of 32 bits that is the same as another exactly when its bits are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Number(f32);

impl Number {
    /// This number.
    pub const fn new(value: f32) -> Self {
        Number(value)
    }

    /// Its value.
    pub const fn get(self) -> f32 {
        self.0
    }

    /// The same number; of both zeros the one without a sign.
    pub fn with_one_zero(self) -> Self {
        Number(self.0 + 0.0)
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Number {}

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Rust prints the shortest text that reads as the same number.
        self.0.fmt(f)
    }
}

impl FromStr for Number {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse().map(Number).map_err(|_| ())
    }
}

/// One field of a problem, for docs and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldFacts {
    /// Its name in texts.
    pub name: &'static str,
    /// `size` (from 1), `whole`, `flag`, `word` or `number`.
    pub kind: &'static str,
    /// What it is where it is left out: a value, or what other fields make it. A field without one is required.
    pub default: Option<String>,
    /// What it may be.
    pub allowed: String,
    /// What it means.
    pub doc: String,
}

impl FieldFacts {
    /// A flag that is false where it is left out.
    pub fn flag(name: &'static str, doc: &str) -> Self {
        Self::of(name, doc, &rules::flag(), (false, "false"))
    }

    /// A field by its rule and its default.
    pub fn of<T: PartialEq + Clone>(
        name: &'static str,
        doc: &str,
        rule: &FieldRule<T>,
        default: (T, &'static str),
    ) -> Self {
        rule.facts(name, &[doc], Some(default), &[])
    }
}

/// Those of another problem's fields that have one of these names: what a gradient says of its forward pass.
pub fn fields_of(table: Vec<FieldFacts>, names: &[&str]) -> Vec<FieldFacts> {
    table.into_iter().filter(|field| names.contains(&field.name)).collect()
}

/// The names of a problem's fields without some of another's, and with some of its own behind them.
pub const fn names<const N: usize>(of: &[&'static str], without: &[&str], and: &[&'static str]) -> [&'static str; N] {
    let (mut all, mut len, mut at) = ([""; N], 0, 0);
    while at < of.len() + and.len() {
        let name = if at < of.len() { of[at] } else { and[at - of.len()] };
        if at >= of.len() || !has(without, name) {
            all[len] = name;
            len += 1;
        }
        at += 1;
    }
    assert!(len == N, "another number of names");
    all
}

const fn has(names: &[&str], name: &str) -> bool {
    let mut at = 0;
    while at < names.len() {
        let (one, other) = (names[at].as_bytes(), name.as_bytes());
        let mut same = 0;
        while one.len() == other.len() && same < one.len() && one[same] == other[same] {
            same += 1;
        }
        if one.len() == other.len() && same == one.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// What a key keeps of a field.
#[derive(Clone, Copy)]
enum InKey<T> {
    /// What the text has.
    AsPrinted,
    /// Its value, its default too.
    Always,
    /// Nothing.
    Nothing,
    /// Whether it is there; `true` where that is said of absent ones too.
    Whether(fn(&T) -> bool, bool),
}

/// Reads a field by its name, or takes its default; the text is what a message expects.
pub type ReadField<T> = fn(&mut FieldReader, &str, &str, Option<T>) -> Result<T, ProblemError>;

/// Which values a field may have, and the same in words.
type Allowed<T> = (fn(&T) -> bool, &'static str);

/// How a field is read, printed and kept in keys. [`rules`] has one for each kind of field.
#[derive(Clone, Copy)]
pub struct FieldRule<T: 'static> {
    kind: &'static str,
    read: ReadField<T>,
    write: fn(&T) -> String,
    expected: &'static str,
    list: &'static [T],
    allowed: Option<Allowed<T>>,
    made: fn(T) -> T,
    is_shown: bool,
    key: InKey<T>,
}

impl<T: PartialEq + Clone + 'static> FieldRule<T> {
    /// A rule of its own kind.
    pub fn new(kind: &'static str, read: ReadField<T>, write: fn(&T) -> String, expected: &'static str) -> Self {
        let made = |value| value;
        FieldRule {
            kind,
            read,
            write,
            expected,
            list: &[],
            allowed: None,
            made,
            is_shown: false,
            key: InKey::AsPrinted,
        }
    }

    /// The text has it even where it is the default.
    pub fn shown(self) -> Self {
        FieldRule { is_shown: true, ..self }
    }

    /// Not every value that can be read may stand there.
    pub fn only(self, allowed: fn(&T) -> bool) -> Self {
        let expected = self.expected;
        self.only_as(allowed, expected)
    }

    /// The same with another sentence for what can be read and may not stand there.
    pub fn only_as(self, allowed: fn(&T) -> bool, expected: &'static str) -> Self {
        FieldRule { allowed: Some((allowed, expected)), ..self }
    }

    /// What a message says of it, in place of what it says by itself.
    pub fn expecting(self, expected: &'static str) -> Self {
        FieldRule { expected, ..self }
    }

    /// What a value becomes before it is kept: two texts of one meaning are one problem.
    pub fn made(self, made: fn(T) -> T) -> Self {
        FieldRule { made, ..self }
    }

    /// The key has it even where it is the default.
    pub fn always_in_key(self) -> Self {
        FieldRule { key: InKey::Always, ..self }
    }

    /// The key does not have it: it decides neither who may race nor who wins.
    pub fn not_in_key(self) -> Self {
        FieldRule { key: InKey::Nothing, ..self }
    }

    /// The key says that it is there, not how large it is.
    pub fn whether_in_key(self, is_there: fn(&T) -> bool) -> Self {
        FieldRule { key: InKey::Whether(is_there, false), ..self }
    }

    /// The key says whether it is there or not, not how large it is.
    pub fn always_whether_in_key(self, is_there: fn(&T) -> bool) -> Self {
        FieldRule { key: InKey::Whether(is_there, true), ..self }
    }

    /// What it may be, as messages say it.
    pub fn expected(&self) -> String {
        if !self.expected.is_empty() || self.list.is_empty() {
            return self.expected.to_string();
        }
        let words: Vec<String> = self.list.iter().map(self.write).collect();
        format!("one of {}", words.join(", "))
    }

    #[doc(hidden)]
    pub fn read(&self, fields: &mut FieldReader, name: &str, default: Option<T>) -> Result<T, ProblemError> {
        let value = (self.read)(fields, name, &self.expected(), default)?;
        let text = || (self.write)(&value);
        if let Some((allowed, expected)) = self.allowed
            && !allowed(&value)
        {
            return Err(ProblemError::value(name, text(), expected));
        }
        if !self.list.is_empty() && !self.list.contains(&value) {
            return Err(ProblemError::value(name, text(), self.expected()));
        }
        Ok((self.made)(value))
    }

    #[doc(hidden)]
    pub fn print(&self, fields: Fields, name: &'static str, value: T, default: Option<T>) -> Fields {
        let is_usual = !self.is_shown && default.is_some_and(|default| default == value);
        if is_usual { fields } else { fields.with(name, (self.write)(&value)) }
    }

    #[doc(hidden)]
    pub fn key(&self, fields: Fields, name: &'static str, value: T, default: Option<T>) -> Fields {
        match self.key {
            InKey::AsPrinted => self.print(fields, name, value, default),
            InKey::Always => fields.with(name, (self.write)(&value)),
            InKey::Nothing => fields,
            InKey::Whether(is_there, true) => fields.with(name, is_there(&value)),
            InKey::Whether(is_there, false) => fields.with_unless(name, is_there(&value), false),
        }
    }

    #[doc(hidden)]
    pub fn facts(
        &self,
        name: &'static str,
        doc: &[&str],
        default: Option<(T, &'static str)>,
        names: &[&str],
    ) -> FieldFacts {
        // A default that other fields make is said by them, any other one by its value.
        let by_others = |said: &str| said.split(|c: char| c != '_' && !c.is_alphanumeric()).any(|w| names.contains(&w));
        let said = |(value, said): (T, &str)| match by_others(said) {
            true => said.to_string(),
            false => Some((self.write)(&value)).filter(|text| !text.is_empty()).unwrap_or_else(|| "none".into()),
        };
        let default = default.map(said);
        let doc = doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        FieldFacts { name, kind: self.kind, default, allowed: self.expected(), doc }
    }
}

/// The kinds of fields.
pub mod rules {
    use super::*;

    /// What a message says of a size.
    const SIZE: &str = "a whole number from 1 to 1048576";
    const _: () = assert!(MAX_SIZE == 1048576);

    /// A number of elements: from 1 to [`MAX_SIZE`].
    pub fn size() -> FieldRule<u64> {
        let read: ReadField<u64> = |fields, name, _, default| match default {
            Some(default) => fields.size_or(name, default),
            None => fields.size(name),
        };
        FieldRule::new("size", read, u64::to_string, SIZE)
    }

    /// A size that may not be there.
    pub fn size_or_none() -> FieldRule<Option<u64>> {
        let read: ReadField<Option<u64>> = |fields, name, _, _| match fields.has(name) {
            true => fields.size(name).map(Some),
            false => fields.size_or(name, 0).map(|_| None),
        };
        FieldRule::new("size", read, written, SIZE)
    }

    /// Whatever reads itself from text and may not be there, and what a message says of it.
    pub fn maybe<T: FromStr + Display + PartialEq + Clone>(expected: &'static str) -> FieldRule<Option<T>> {
        let read: ReadField<Option<T>> = |fields, name, expected, default| match fields.has(name) {
            true => fields.word(name, expected).map(Some),
            false => fields.word_or(name, expected, Absent).map(|Absent| default.flatten()),
        };
        FieldRule::new("number", read, written, expected)
    }

    /// What no text reads as.
    struct Absent;

    impl FromStr for Absent {
        type Err = ();
        fn from_str(_: &str) -> Result<Self, ()> {
            Err(())
        }
    }

    fn written<T: Display>(value: &Option<T>) -> String {
        value.as_ref().map_or_else(String::new, ToString::to_string)
    }

    /// Yes or no.
    pub fn flag() -> FieldRule<bool> {
        any("flag", "true or false")
    }

    /// One of a closed list of words.
    pub fn word<T: Words + FromStr + Display + PartialEq>() -> FieldRule<T> {
        any("word", T::SENTENCE)
    }

    /// One of some values of a type.
    pub fn one_of<T: FromStr + Display + PartialEq + Clone>(list: &'static [T]) -> FieldRule<T> {
        FieldRule { list, ..any("word", "") }
    }

    /// A type of numbers that kernels compute with: f32, f16 or bf16.
    pub fn float() -> FieldRule<DType> {
        one_of(&[DType::F32, DType::F16, DType::Bf16])
    }

    /// A whole number, and what a message says of it.
    pub fn whole<T: FromStr + Display + PartialEq + Clone>(expected: &'static str) -> FieldRule<T> {
        any("whole", expected)
    }

    /// Whatever reads itself from text, and what a message says of it.
    pub fn other<T: FromStr + Display + PartialEq + Clone>(expected: &'static str) -> FieldRule<T> {
        any("number", expected)
    }

    /// A number that is neither infinite nor none.
    pub fn finite() -> FieldRule<Number> {
        number("a finite number", |number| number.get().is_finite())
    }

    /// A share of a whole.
    pub fn share() -> FieldRule<Number> {
        number("a number from 0 to 1", |share| (0.0..=1.0).contains(&share.get())).made(Number::with_one_zero)
    }

    /// A share that leaves something.
    pub fn share_below_one() -> FieldRule<Number> {
        number("a number from 0 to below 1", |share| (0.0..1.0).contains(&share.get())).made(Number::with_one_zero)
    }

    /// A number that may be some of all there are.
    pub fn number(expected: &'static str, allowed: fn(&Number) -> bool) -> FieldRule<Number> {
        any("number", expected).only(allowed)
    }

    /// A finite number from `LOW` to `HIGH`.
    pub fn between<const LOW: i64, const HIGH: i64>(expected: &'static str) -> FieldRule<Number> {
        let read: ReadField<Number> = |fields, name, _, default| {
            let usual = f64::from(default.map_or(0.0, Number::get));
            Ok(Number::new(fields.number_or(name, LOW as f64, HIGH as f64, usual)? as f32))
        };
        FieldRule::new("number", read, Number::to_string, expected)
    }

    fn any<T: FromStr + Display + PartialEq + Clone>(kind: &'static str, expected: &'static str) -> FieldRule<T> {
        let read: ReadField<T> = |fields, name, expected, default| match default {
            Some(default) => fields.word_or(name, expected, default),
            None => fields.word(name, expected),
        };
        FieldRule::new(kind, read, T::to_string, expected)
    }
}

/// Makes a problem of its fields:
///
/// ```
/// use warplap_core::declare::problem;
/// use warplap_core::dtype::DType;
///
/// problem! {
///     /// The facts of one sum.
///     #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
///     pub struct SumProblem {
///         /// Rows.
///         pub rows: u64 => size(),
///         /// Elements from a row to the next.
///         pub pitch("ld"): u64 = rows => size(),
///         /// Type of all buffers.
///         pub dtype: DType = DType::F32 => float().shown(),
///     }
/// }
/// ```
///
/// A field has its doc, its name (and, in parentheses, the one in texts where that is another), its type, its default
/// where it may be left out, and a rule of [`rules`](crate::declare::rules). `declared!()` in `impl Problem for …`
/// says that text, key and table are those of the fields.
#[macro_export]
macro_rules! problem {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[doc = $doc:literal])+
            $fvis:vis $field:ident $(($text:literal))? : $ty:ty $(= $default:expr)? => $rule:expr),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[doc = $doc])+
            $fvis $field: $ty,)+
        }

        #[allow(dead_code, unused_variables, clippy::clone_on_copy)]
        impl $name {
            const DECLARED: &'static [&'static str] = &[$($crate::problem!(@name $field $($text)?)),+];

            fn declared_fields(&self) -> $crate::problem::Fields {
                use $crate::declare::rules::*;
                let $name { $($field),+ } = self.clone();
                let fields = $crate::problem::Fields::new();
                $(let rule: $crate::declare::FieldRule<$ty> = $rule;
                let name = $crate::problem!(@name $field $($text)?);
                let fields = rule.print(fields, name, $field.clone(), $crate::problem!(@default $($default)?));)+
                fields
            }

            fn declared_key(&self) -> $crate::problem::Fields {
                use $crate::declare::rules::*;
                let $name { $($field),+ } = self.clone();
                let fields = $crate::problem::Fields::new();
                $(let rule: $crate::declare::FieldRule<$ty> = $rule;
                let name = $crate::problem!(@name $field $($text)?);
                let fields = rule.key(fields, name, $field.clone(), $crate::problem!(@default $($default)?));)+
                fields
            }

            fn declared_read(
                reader: &mut $crate::problem::FieldReader,
            ) -> Result<Self, $crate::problem::ProblemError> {
                use $crate::declare::rules::*;
                $(let $field: $ty = {
                    let rule: $crate::declare::FieldRule<$ty> = $rule;
                    let name = $crate::problem!(@name $field $($text)?);
                    rule.read(reader, name, $crate::problem!(@default $($default)?))?
                };)+
                Ok($name { $($field),+ })
            }

            fn declared_table(&self) -> Vec<$crate::declare::FieldFacts> {
                use $crate::declare::rules::*;
                let $name { $($field),+ } = self.clone();
                let names = &[$(stringify!($field)),+];
                vec![$({
                    let rule: $crate::declare::FieldRule<$ty> = $rule;
                    let name = $crate::problem!(@name $field $($text)?);
                    rule.facts(name, &[$($doc),+], $crate::problem!(@said $($default)?), names)
                }),+]
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $text:literal) => { $text };
    (@default) => { None };
    (@default $default:expr) => { Some($default) };
    (@said) => { None };
    (@said $default:expr) => { Some(($default, stringify!($default))) };
}

/// In `impl Problem for …` of a struct of [`problem!`](crate::problem!): its names, text, reading, key and table are
/// those of its fields. The key is that of [`Problem::representative`](crate::problem::Problem::representative);
/// `declared!(text)` leaves it to the operation.
#[macro_export]
macro_rules! declared {
    () => {
        $crate::declared!(text);

        fn key_fields(&self, bucket: &$crate::bucket::Bucket) -> $crate::problem::Fields {
            $crate::problem::Problem::representative(self, bucket).declared_key()
        }
    };
    (text) => {
        const FIELDS: &'static [&'static str] = Self::DECLARED;

        fn fields(&self) -> $crate::problem::Fields {
            self.declared_fields()
        }

        fn read(fields: &mut $crate::problem::FieldReader) -> Result<Self, $crate::problem::ProblemError> {
            let problem = Self::declared_read(fields)?;
            $crate::problem::Problem::check(&problem)?;
            Ok(problem)
        }

        fn table(&self) -> Vec<$crate::declare::FieldFacts> {
            self.declared_table()
        }
    };
}

/// Makes an enum of a closed list of words, each with its doc:
///
/// ```
/// use warplap_core::declare::words;
///
/// words! {
///     /// What becomes of the losses of all rows.
///     #[derive(Default)]
///     pub enum Reduction {
///         /// Their mean.
///         #[default]
///         Mean = "mean",
///         /// Their sum.
///         Sum = "sum",
///     }
/// }
/// assert_eq!("sum".parse(), Ok(Reduction::Sum));
/// ```
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$of:meta])* $word:ident = $text:literal),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[$of])* $word),+
        }

        #[allow(dead_code)]
        impl $name {
            /// All there are.
            $vis const ALL: [$name; [$($name::$word as usize),+].len()] = [$($name::$word),+];

            /// Its word in texts.
            $vis const fn name(self) -> &'static str {
                match self {
                    $($name::$word => $text),+
                }
            }
        }

        impl $crate::declare::Words for $name {
            const ALL: &'static [$name] = &$name::ALL;
            const SENTENCE: &'static str = $crate::words!(@sentence $($text),+);
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                $name::ALL.into_iter().find(|word| word.name() == text).ok_or(())
            }
        }
    };
    (@sentence $first:literal $(, $other:literal)*) => { concat!("one of ", $first $(, ", ", $other)*) };
}

pub use crate::{declared, problem, words};

#[cfg(test)]
mod tests {
    use super::*;

    words! {
        /// An order.
        enum Order {
            /// Rows.
            Row = "row",
            /// Columns.
            Col = "col",
        }
    }

    problem! {
        /// Facts with every kind of field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        struct Facts {
            /// Rows.
            rows: u64 => size(),
            /// From a row
            /// to the next.
            pitch("ld"): u64 = 2 * rows => whole("a number of elements").only_as(|ld| *ld < 100, "less than 100"),
            /// Its type.
            dtype: DType = DType::F32 => float().shown(),
            /// How it lies.
            order: Order = Order::Row => word().always_in_key(),
            /// How much is dropped.
            dropout: Number = Number::new(0.0) => share_below_one().whether_in_key(|share| share.get() > 0.0),
            /// Whatever.
            back: bool = false => flag().not_in_key(),
        }
    }

    fn read(text: &str) -> Result<Facts, String> {
        let mut reader = FieldReader::new(text).map_err(|e| e.to_string())?;
        Facts::declared_read(&mut reader).map_err(|e| e.to_string())
    }

    #[test]
    fn a_text_leaves_defaults_out_and_reads_back() {
        let plain = read("rows=5").unwrap();
        assert_eq!(plain.declared_fields().to_string(), "rows=5,dtype=f32");
        assert_eq!((plain.pitch, plain.order), (10, Order::Row));
        let text = "rows=5,ld=11,dtype=f16,order=col,dropout=0.1,back=true";
        assert_eq!(read(text).unwrap().declared_fields().to_string(), text);
        assert_eq!(read("rows=5,ld=10,dropout=-0").unwrap(), plain);
    }

    #[test]
    fn a_key_keeps_what_each_field_says() {
        let key = |text: &str| read(text).unwrap().declared_key().to_string();
        assert_eq!(key("rows=5,back=true"), "rows=5,dtype=f32,order=row");
        assert_eq!(key("rows=5,ld=11,dropout=0.3"), "rows=5,ld=11,dtype=f32,order=row,dropout=true");
    }

    #[test]
    fn what_may_not_stand_there_is_named_with_what_may() {
        for (text, expected) in [
            ("", "field 'rows' is missing: expected a whole number from 1 to 1048576"),
            ("rows=5,ld=x", "field 'ld' is 'x': expected a number of elements"),
            ("rows=5,ld=100", "field 'ld' is '100': expected less than 100"),
            ("rows=5,dtype=i8", "field 'dtype' is 'i8': expected one of f32, f16, bf16"),
            ("rows=5,order=both", "field 'order' is 'both': expected one of row, col"),
            ("rows=5,dropout=1", "field 'dropout' is '1': expected a number from 0 to below 1"),
        ] {
            assert_eq!(read(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn the_table_says_what_docs_show() {
        let table = read("rows=5").unwrap().declared_table();
        let defaults: Vec<_> = table.iter().map(|field| (field.name, field.kind, field.default.as_deref())).collect();
        let expected = [
            ("rows", "size", None),
            ("ld", "whole", Some("2 * rows")),
            ("dtype", "word", Some("f32")),
            ("order", "word", Some("row")),
            ("dropout", "number", Some("0")),
            ("back", "flag", Some("false")),
        ];
        assert_eq!(defaults, expected);
        assert_eq!((&*table[1].doc, &*table[3].allowed), ("From a row to the next.", "one of row, col"));
    }
}
