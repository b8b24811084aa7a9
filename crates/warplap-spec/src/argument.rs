//! One argument of a user's kernel: its type, its size, what it is filled with, and whether the kernel writes it.

use std::sync::Arc;

use warplap::DType;
use warplap::core::array::Array;
use warplap::core::space::Value;

/// What the kernel does with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads it.
    In,
    /// It writes every element of it.
    Out,
    /// It reads and writes it: every launch finds it as it was filled.
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
    /// A 64-bit integer: numbers by value only.
    I64,
}

impl Element {
    /// The names there are.
    pub(crate) const EXPECTED: &'static str = "one of f64, f32, f16, bf16, i32, and for scalars i64";

    /// Reads a name, as this project or as C and NumPy have it.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "float" | "float32" => Element::Stored(DType::F32),
            "double" | "float64" => Element::Stored(DType::F64),
            "half" | "float16" => Element::Stored(DType::F16),
            "bfloat16" => Element::Stored(DType::Bf16),
            "int" | "int32" => Element::Stored(DType::I32),
            "i64" | "int64" | "long" => Element::I64,
            name => Element::Stored(name.parse().ok()?),
        })
    }

    /// As C writes it.
    pub(crate) fn c_name(self) -> &'static str {
        match self {
            Element::Stored(DType::F64) => "double",
            Element::Stored(DType::F32) => "float",
            Element::Stored(DType::I32) => "int",
            // What a compiler calls sixteen bits differs: the kernel's own prototype decides.
            Element::Stored(DType::F16 | DType::Bf16) => "void",
            Element::I64 => "long long",
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

    /// The type of its elements; of a scalar that has none, f64.
    pub(crate) fn dtype(&self) -> DType {
        match self.element {
            Element::Stored(dtype) => dtype,
            Element::I64 => DType::F64,
        }
    }

    /// Whether the kernel writes it.
    pub(crate) fn is_output(&self) -> bool {
        matches!(self.role, Role::Out | Role::InOut)
    }

    /// Whether it has content before a launch.
    pub(crate) fn is_input(&self) -> bool {
        matches!(self.role, Role::In | Role::InOut)
    }

    /// Its content for one proof.
    pub(crate) fn draw(&self, rng: &mut fastrand::Rng) -> Array {
        let (dtype, len) = (self.dtype(), self.len());
        match &self.fill {
            Fill::Random if dtype == DType::I32 => Array::from_f64(dtype, (0..len).map(|_| f64::from(rng.u8(..)))),
            Fill::Random => Array::random(dtype, len, rng),
            Fill::Zeros => Array::filled(dtype, len, 0.0),
            Fill::Range => Array::from_f64(dtype, (0..len).map(|i| i as f64)),
            Fill::File(array) => Array::clone(array),
        }
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
        format!("{} {:?} {:?} {:?} {fill} {:?}", self.name, self.element, self.role, self.shape, self.value)
    }

    /// Type and sizes for keys: `f32[512x512]`, or a scalar's type and value.
    pub(crate) fn short(&self) -> String {
        let element = match self.element {
            Element::Stored(dtype) => dtype.name(),
            Element::I64 => "i64",
        };
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
    match array {
        Array::F64(v) => v.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        Array::F32(v) => v.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        Array::F16(v) => v.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        Array::Bf16(v) => v.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        Array::I32(v) => v.iter().flat_map(|x| x.to_ne_bytes()).collect(),
    }
}

fn mix(hash: u64, bits: u64) -> u64 {
    (hash.rotate_left(5) ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
