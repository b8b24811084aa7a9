//! Element types: what comes in is a name, what goes out is size and precision. The one table of them is here: whoever
//! needs a line for every type ([`Array`](crate::model::array::Array), a device's views) makes it of
//! [`dtypes!`](crate::dtypes).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::scalar::Scalar;

/// Every element type, one line each, handed to a macro behind tokens of its own:
/// `Variant = Rust type, ("what it is", "name", unit roundoff, usual relative error);`.
#[macro_export]
macro_rules! dtypes {
    ($then:ident $($own:tt)*) => {
        $then! {
            $($own)*
            F64 = f64, ("IEEE double precision; right answers are kept in it.", "f64", 1.1102230246251565e-16, 1e-12);
            F32 = f32, ("IEEE single precision.", "f32", 5.960464477539063e-8, 1e-5);
            F16 = $crate::scalar::f16, ("IEEE half precision.", "f16", 4.8828125e-4, 4e-3);
            Bf16 = $crate::scalar::bf16, ("Brain float: eight bits of exponent, seven of mantissa.", "bf16", 3.90625e-3, 3e-2);
            F8E4m3 = $crate::scalar::F8E4m3, ("Four bits of exponent, three of mantissa, no infinities.", "f8e4m3", 0.0625, 0.125);
            F8E5m2 = $crate::scalar::F8E5m2, ("Five bits of exponent, two of mantissa.", "f8e5m2", 0.125, 0.25);
            I64 = i64, ("64-bit integer.", "i64", 0.0, 0.0);
            I32 = i32, ("32-bit integer: indices.", "i32", 0.0, 0.0);
            I8 = i8, ("8-bit integer.", "i8", 0.0, 0.0);
            U8 = u8, ("8-bit integer without a sign.", "u8", 0.0, 0.0);
            Bool = $crate::scalar::Bool, ("One byte, 0 or 1.", "bool", 0.0, 0.0);
        }
    };
}

macro_rules! table {
    ($($V:ident = $T:ty, ($doc:literal, $name:literal, $roundoff:literal, $leeway:literal);)*) => {
        /// The type of one element of a buffer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum DType {
            $(#[doc = $doc] $V,)*
        }

        impl DType {
            /// Every element type, in the order help texts name them.
            pub const ALL: [DType; [$(DType::$V),*].len()] = [$(DType::$V),*];

            /// Bytes of one element.
            pub const fn bytes(self) -> usize {
                match self { $(DType::$V => size_of::<$T>(),)* }
            }

            /// Unit roundoff: the largest relative error of rounding a real number to this type.
            pub const fn roundoff(self) -> f64 {
                match self { $(DType::$V => $roundoff,)* }
            }

            /// Relative error allowed of a kernel about whose sums nothing is known.
            pub const fn leeway(self) -> f64 {
                match self { $(DType::$V => $leeway,)* }
            }

            /// The name used in problem texts and records.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$V => $name,)* }
            }

            /// Whether it holds whole numbers only.
            pub const fn is_whole(self) -> bool {
                self.roundoff() == 0.0
            }

            /// A number as an element of this type holds it.
            pub fn rounded(self, value: f64) -> f64 {
                match self { $(DType::$V => <$T as Scalar>::from_f64(value).to_f64(),)* }
            }
        }
    };
}
dtypes!(table);

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = DType::ALL.into_iter().find(|d| d.name() == text);
        named.ok_or_else(|| format!("one of {}", DType::ALL.map(DType::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_its_name_in_texts_and_records() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(serde_json::to_string(&dtype).unwrap(), format!("\"{dtype}\""));
            assert_eq!(serde_json::from_str::<DType>(&format!("\"{dtype}\"")).unwrap(), dtype);
        }
        let said = "f8".parse::<DType>().unwrap_err();
        assert_eq!(said, "one of f64, f32, f16, bf16, f8e4m3, f8e5m2, i64, i32, i8, u8, bool");
    }

    #[test]
    fn the_roundoff_is_half_the_step_behind_one() {
        for dtype in DType::ALL {
            let half = dtype.roundoff();
            assert_eq!(dtype.rounded(1.0), 1.0, "{dtype}");
            if !dtype.is_whole() {
                assert_eq!(dtype.rounded(1.0 + 2.0 * half), 1.0 + 2.0 * half, "{dtype}");
                assert_eq!(dtype.rounded(1.0 + 0.99 * half), 1.0, "{dtype}");
            }
        }
    }
}
