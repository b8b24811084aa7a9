//! Element types: Burn's come in, ours go out, and the other way round.

use burn::tensor::DType as BurnType;
use warplap::{DType, Error};

/// Our name of one of Burn's element types, where kernels know it.
pub(crate) fn ours(dtype: BurnType, argument: &str) -> Result<DType, Error> {
    Ok(match dtype {
        BurnType::F64 => DType::F64,
        BurnType::F32 | BurnType::Flex32 => DType::F32,
        BurnType::F16 => DType::F16,
        BurnType::BF16 => DType::Bf16,
        BurnType::I64 => DType::I64,
        BurnType::I32 => DType::I32,
        BurnType::I8 => DType::I8,
        BurnType::U8 => DType::U8,
        other => {
            let reason = format!("holds {other:?}, expected f32, f16 or bf16: cast it first");
            return Err(Error::Argument { argument: argument.into(), reason });
        }
    })
}

/// Our name of a float type that products, attention and norms take.
pub(crate) fn float(dtype: BurnType, argument: &str) -> Result<DType, Error> {
    match dtype {
        BurnType::F32 | BurnType::F16 | BurnType::BF16 => ours(dtype, argument),
        other => {
            let reason = format!("holds {other:?}, expected f32, f16 or bf16: cast it first");
            Err(Error::Argument { argument: argument.into(), reason })
        }
    }
}

/// Burn's name of one of our element types.
pub(crate) fn burns(dtype: DType) -> Result<BurnType, Error> {
    Ok(match dtype {
        DType::F64 => BurnType::F64,
        DType::F32 => BurnType::F32,
        DType::F16 => BurnType::F16,
        DType::Bf16 => BurnType::BF16,
        DType::I64 => BurnType::I64,
        DType::I32 => BurnType::I32,
        DType::I8 => BurnType::I8,
        DType::U8 => BurnType::U8,
        other => return Err(Error::Device(format!("Burn has no tensors of {other}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_goes_there_and_back_is_the_same_and_others_are_refused_by_name() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I64, DType::I32, DType::I8, DType::U8] {
            assert_eq!(ours(burns(dtype).unwrap(), "x").unwrap(), dtype);
        }
        let error = float(BurnType::F64, "q").unwrap_err().to_string();
        assert!(error.contains("'q'") && error.contains("F64") && error.contains("cast"), "{error}");
    }
}
