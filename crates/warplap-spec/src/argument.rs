//! One argument of a user's kernel: its type, its size, what it is filled with, and whether the kernel writes it.

use std::sync::Arc;

use warplap::DType;
use warplap::core::arg;
use warplap::core::array::Array;
use warplap::core::each_array;
use warplap::core::rejection::Rejection;
use warplap::core::scalar::Scalar;
use warplap::core::slot::Slot;
use warplap::core::space::Value;

/// Shorter buffers are drawn anew as a whole; of longer ones one element of so many is.
const SHORT: usize = 16;
const FRESH: usize = 8;

/// What the kernel does with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads it.
    In,
    /// It writes every element of it.
    Out,
    /// It reads and writes it in place: a proof finds it as it was filled, a timed launch as the one before left it.
    InOut,
    /// A number, given by value.
    Scalar,
    /// It reads it as a global of its own, in CUDA's constant memory: no parameter.
    Constant,
}

/// What a buffer is filled with.
#[derive(Clone, Debug)]
pub enum Fill {
    /// Uniform numbers in [-1, 1), fresh for every proof; of i32: 0 to 255.
    Random,
    /// Zeros.
    Zeros,
    /// 0, 1, 2, …
    Range,
    /// The content of a file.
    File(Arc<Array>),
}

/// The type of a number given by value, or of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// A type that buffers have too.
    Stored(DType),
}

impl Element {
    /// The names there are.
    pub(crate) const EXPECTED: &'static str = "one of f64, f32, f16, bf16, f8e4m3, f8e5m2, i64, i32, i8, u8, bool";

    /// Reads a name, as this project or as C and NumPy have it.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "float" | "float32" => Element::Stored(DType::F32),
            "double" | "float64" => Element::Stored(DType::F64),
            "half" | "float16" => Element::Stored(DType::F16),
            "bfloat16" => Element::Stored(DType::Bf16),
            "int" | "int32" => Element::Stored(DType::I32),
            "int64" | "long" => Element::Stored(DType::I64),
            "int8" => Element::Stored(DType::I8),
            "uint8" => Element::Stored(DType::U8),
            name => Element::Stored(name.parse().ok()?),
        })
    }

    /// As C writes it.
    pub(crate) fn c_name(self) -> &'static str {
        match self {
            Element::Stored(DType::F64) => "double",
            Element::Stored(DType::F32) => "float",
            Element::Stored(DType::I32) => "int",
            Element::Stored(DType::I64) => "long long",
            Element::Stored(DType::I8) => "signed char",
            Element::Stored(DType::U8) => "unsigned char",
            // What a compiler calls sixteen bits and some of eight differs: the kernel's own prototype decides.
            Element::Stored(_) => "void",
        }
    }
}

/// One argument, with its sizes worked out.
#[derive(Clone, Debug)]
pub struct Argument {
    /// Its name in messages.
    pub name: String,
    /// Its type.
    pub element: Element,
    /// What the kernel does with it.
    pub role: Role,
    /// Sizes by dimension, slowest first; of a scalar none.
    pub shape: Vec<u64>,
    /// What it is filled with.
    pub fill: Fill,
    /// A scalar's value.
    pub value: Option<Value>,
}

impl Argument {
    /// Elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }

    /// Whether it has no elements: it is a scalar.
    pub fn is_empty(&self) -> bool {
        self.shape.is_empty()
    }

    /// The type of its elements.
    pub(crate) fn dtype(&self) -> DType {
        let Element::Stored(dtype) = self.element;
        dtype
    }

    /// Whether the kernel writes it.
    pub(crate) fn is_output(&self) -> bool {
        matches!(self.role, Role::Out | Role::InOut)
    }

    /// Whether it has content before a launch.
    pub(crate) fn is_input(&self) -> bool {
        matches!(self.role, Role::In | Role::InOut)
    }

    /// The slot of a parameter.
    pub(crate) fn slot(&self) -> Slot {
        let (name, dtype) = (self.name.clone(), self.dtype());
        match self.role {
            Role::In if matches!(self.fill, Fill::Random) => Slot::input(name, dtype, &self.shape),
            Role::In | Role::Constant => Slot::input(name, dtype, &self.shape).steady(),
            Role::Out => Slot::output(name, dtype, &self.shape),
            Role::InOut => Slot::in_out(name, dtype, &self.shape),
            Role::Scalar => Slot::scalar(name, dtype),
        }
    }

    /// A scalar's value; of a buffer, 0.
    pub(crate) fn number(&self) -> f64 {
        match &self.value {
            Some(Value::Int(i)) => *i as f64,
            Some(Value::Float(x)) => x.0,
            Some(Value::Bool(b)) => f64::from(u8::from(*b)),
            Some(Value::Text(_)) | None => 0.0,
        }
    }

    /// A scalar's value as a launch is given it.
    pub(crate) fn scalar(&self) -> arg::ScalarArg {
        match &self.value {
            Some(Value::Int(i)) => arg::ScalarArg::Int(*i),
            _ => arg::ScalarArg::Real(self.number()),
        }
    }

    /// Refuses another number than the spec's own, rounded to the scalar's type: kernels were tried out and proved with
    /// that one alone, and it may be what keeps them inside of their buffers.
    #[inline]
    pub(crate) fn check(&self, inputs: arg::ScalarArg) -> Result<(), Rejection> {
        let rounded = |number: f64| match self.element {
            Element::Stored(DType::F32) => f64::from(number as f32),
            Element::Stored(DType::I32) => f64::from(number as i32),
            _ => number,
        };
        let (inputs, own) = (rounded(inputs.real()), rounded(self.number()));
        if inputs.total_cmp(&own).is_eq() {
            return Ok(());
        }
        Err(Rejection::LaunchFailed { reason: format!("'{}' is {inputs}: expected {own}, as in the spec", self.name) })
    }

    /// Its content for one proof: nothing where nothing is read, an array of one for a scalar.
    pub(crate) fn draw(&self, rng: &mut fastrand::Rng) -> Array {
        let (dtype, len) = (self.dtype(), self.len());
        match &self.fill {
            _ if self.role == Role::Out => Array::none(),
            _ if self.role == Role::Scalar => Array::from_f64(dtype, [self.number()]),
            Fill::Random => self.random(rng),
            Fill::Zeros => Array::filled(dtype, len, 0.0),
            Fill::Range => Array::from_f64(dtype, (0..len).map(|i| i as f64)),
            Fill::File(array) => Array::clone(array),
        }
    }

    /// Random content, most of it the same in every drawing, the first element always: a kernel that keeps its last
    /// answer, and looks at a few elements to see whether it may, finds them as they were and is wrong.
    fn random(&self, rng: &mut fastrand::Rng) -> Array {
        let (dtype, len) = (self.dtype(), self.len());
        if len < SHORT {
            return Array::random(dtype, len, rng);
        }
        let name = self.name.bytes().fold(len as u64, |seed, byte| mix(seed, byte.into()));
        let mut array = Array::random(dtype, len, &mut fastrand::Rng::with_seed(name));
        each_array!(&mut array, values => for _ in 0..len.div_ceil(FRESH) {
            values[rng.usize(1..len)] = Scalar::drawn(rng);
        });
        array
    }

    /// The content of constant memory, which is the same for every proof.
    pub(crate) fn content(&self) -> Array {
        self.draw(&mut fastrand::Rng::with_seed(0))
    }

    /// Everything that decides what a kernel is given, as one text.
    pub(crate) fn identity(&self) -> String {
        let fill = match &self.fill {
            Fill::Random => "random".to_string(),
            Fill::Zeros => "zeros".to_string(),
            Fill::Range => "range".to_string(),
            Fill::File(array) => format!("file {:?}", array.to_f64().iter().map(|v| v.to_bits()).fold(0, mix)),
        };
        // Launches once began with a copy of what is changed in place: records of that time are stale.
        let in_place = if self.role == Role::InOut { " in place" } else { "" };
        format!("{} {:?} {:?} {:?} {fill} {:?}{in_place}", self.name, self.element, self.role, self.shape, self.value)
    }

    /// Type and sizes for keys: `f32[512x512]`, or a scalar's type and value.
    pub(crate) fn short(&self) -> String {
        let element = self.dtype().name();
        match &self.value {
            Some(value) => format!("{element}:{value}"),
            None => {
                let sizes: Vec<String> = self.shape.iter().map(u64::to_string).collect();
                format!("{element}[{}]", sizes.join("x"))
            }
        }
    }
}

/// An array's bytes as they lie in memory.
pub(crate) fn bytes(array: &Array) -> Vec<u8> {
    array.to_bytes()
}

fn mix(hash: u64, bits: u64) -> u64 {
    (hash.rotate_left(5) ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_takes_the_numbers_of_the_spec_and_no_others() {
        let scalar = |element, value| {
            let (name, shape, fill) = ("n".to_string(), Vec::new(), Fill::Zeros);
            Argument { name, element, role: Role::Scalar, shape, fill, value: Some(value) }
        };
        let numbers = [
            scalar(Element::Stored(DType::F32), Value::from(0.3)),
            scalar(Element::Stored(DType::I32), Value::Int(-7)),
            scalar(Element::Stored(DType::I64), Value::Int(1 << 40)),
        ];
        for number in numbers {
            let drawn = number.draw(&mut fastrand::Rng::with_seed(0)).at(0);
            assert!(
                number.check(arg::ScalarArg::Real(drawn)).is_ok() && number.check(number.scalar()).is_ok(),
                "{drawn}"
            );
            let said = number.check(arg::ScalarArg::Real(drawn + 1.0)).unwrap_err().to_string();
            assert!(said.contains("'n' is") && said.contains("as in the spec"), "{said}");
        }
    }
}
