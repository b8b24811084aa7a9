//! Element types: what comes in is a name, what goes out is size and precision.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The type of one element of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE double precision; right answers are kept in it.
    F64,
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// Brain float: eight bits of exponent, seven of mantissa.
    Bf16,
    /// 32-bit index.
    I32,
}

impl DType {
    /// Every element type, in the order help texts name them.
    pub const ALL: [DType; 5] = [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I32];

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::Bf16 => 2,
        }
    }

    /// Unit roundoff: the largest relative error of rounding a real number to this type.
    pub const fn roundoff(self) -> f64 {
        match self {
            DType::F64 => 1.1102230246251565e-16,
            DType::F32 => 5.960464477539063e-8,
            DType::F16 => 4.8828125e-4,
            DType::Bf16 => 3.90625e-3,
            DType::I32 => 0.0,
        }
    }

    /// The name used in problem texts and records.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I32 => "i32",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        DType::ALL.into_iter().find(|d| d.name() == text).ok_or_else(|| "one of f64, f32, f16, bf16, i32".to_string())
    }
}
