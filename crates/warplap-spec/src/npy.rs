//! NumPy's files: the bytes of a `.npy` come in; the shape and the elements go out.

use warplap::DType;
use warplap::core::array::Array;
use warplap::core::scalar::{Bool, F8E4m3, F8E5m2};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads a file of f8, f4, f2, i8, i4, i1, u1 or b1 in C order. The error is a sentence.
pub(crate) fn parse(bytes: &[u8]) -> Result<(Vec<u64>, Array), String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is no .npy file: expected one written by numpy.save")?;
    let cut = || "it ends early: expected a whole .npy file".to_string();
    let (&[major, _minor], rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let (length, rest) = if major == 1 {
        let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
        (u64::from(u16::from_le_bytes(*length)), rest)
    } else {
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        (u64::from(u32::from_le_bytes(*length)), rest)
    };
    let length = usize::try_from(length).ok().filter(|l| *l <= rest.len()).ok_or_else(cut)?;
    let (header, content) = rest.split_at(length);
    let header = std::str::from_utf8(header).map_err(|_| "its header is no text")?;
    if field(header, "fortran_order").is_some_and(|v| v.starts_with("True")) {
        return Err("it is in Fortran order: expected C order (numpy.ascontiguousarray)".into());
    }
    let shape = field(header, "shape").and_then(|v| v.strip_prefix('(')?.split_once(')')).ok_or("it has no shape")?.0;
    let sizes = shape.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::parse::<u64>);
    let shape = sizes.collect::<Result<Vec<u64>, _>>().map_err(|_| "its shape is no list of sizes")?;
    let len = shape.iter().try_fold(1u64, |n, s| n.checked_mul(*s)).ok_or("its shape is too large")?;
    let descr = field(header, "descr").unwrap_or_default();
    let code = descr.trim_start_matches(['\'', '"']).split(['\'', '"']).next().unwrap_or_default();
    let dtype = match code {
        "<f8" => DType::F64,
        "<f4" => DType::F32,
        "<f2" => DType::F16,
        "<i8" => DType::I64,
        "<i4" => DType::I32,
        "|i1" => DType::I8,
        "|u1" => DType::U8,
        "|b1" => DType::Bool,
        _ => {
            let expected = "float64, float32, float16, int64, int32, int8, uint8 or bool";
            return Err(format!("its elements are '{code}': expected {expected}"));
        }
    };
    if (content.len() as u64) < len.saturating_mul(dtype.bytes() as u64) {
        return Err(cut());
    }
    let content = &content[..len as usize * dtype.bytes()];
    Ok((shape, from_bytes(dtype, content)))
}

/// Writes a file as numpy.save does; floats of sixteen and eight bits, which NumPy has not all of, as f4.
pub(crate) fn to_bytes(shape: &[u64], array: &Array) -> Vec<u8> {
    let descr = match array.dtype() {
        DType::F64 => "<f8",
        DType::I64 => "<i8",
        DType::I32 => "<i4",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
        DType::F32 | DType::F16 | DType::Bf16 | DType::F8E4m3 | DType::F8E5m2 => "<f4",
    };
    let content = match descr {
        "<f4" => Array::from_f64(DType::F32, array.to_f64()).to_bytes(),
        _ => array.to_bytes(),
    };
    let sizes: String = shape.iter().map(|s| format!("{s}, ")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}\n");
    [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &content].concat()
}

/// What follows a name in the header's dictionary.
fn field<'h>(header: &'h str, name: &str) -> Option<&'h str> {
    let at = header.find(&format!("'{name}':"))?;
    Some(header[at + name.len() + 3..].trim_start())
}

fn from_bytes(dtype: DType, bytes: &[u8]) -> Array {
    fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
        bytes.chunks_exact(N).map(|c| c.try_into().unwrap_or([0; N]))
    }
    match dtype {
        DType::F64 => Array::F64(words(bytes).map(f64::from_le_bytes).collect()),
        DType::F32 => Array::F32(words(bytes).map(f32::from_le_bytes).collect()),
        DType::I64 => Array::I64(words(bytes).map(i64::from_le_bytes).collect()),
        DType::I32 => Array::I32(words(bytes).map(i32::from_le_bytes).collect()),
        DType::I8 => Array::I8(words(bytes).map(i8::from_le_bytes).collect()),
        DType::U8 => Array::U8(bytes.to_vec()),
        DType::Bool => Array::Bool(bytes.iter().copied().map(Bool).collect()),
        DType::F8E4m3 => Array::F8E4m3(bytes.iter().copied().map(F8E4m3).collect()),
        DType::F8E5m2 => Array::F8E5m2(bytes.iter().copied().map(F8E5m2).collect()),
        // Through f32, which holds every half exactly.
        DType::F16 | DType::Bf16 => Array::from_f64(dtype, words(bytes).map(|w| half(u16::from_le_bytes(w)))),
    }
}

fn half(bits: u16) -> f64 {
    let (sign, exponent, mantissa) = (bits >> 15, (bits >> 10) & 31, f64::from(bits & 1023));
    let value = match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1.0 + mantissa / 1024.0) * 2f64.powi(i32::from(e) - 15),
    };
    if sign == 1 { -value } else { value }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file as numpy.save writes it.
    pub(crate) fn saved(descr: &str, shape: &str, content: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), content].concat()
    }

    #[test]
    fn what_is_written_reads_back() {
        for array in [Array::F64(vec![0.1, -2.0]), Array::F32(vec![0.5, 1.0]), Array::I32(vec![3, -4])] {
            assert_eq!(parse(&to_bytes(&[1, 2], &array)), Ok((vec![1, 2], array)));
        }
        for dtype in [DType::I64, DType::I8, DType::U8, DType::Bool] {
            let array = Array::from_f64(dtype, [1.0, 0.0]);
            assert_eq!(parse(&to_bytes(&[2], &array)), Ok((vec![2], array)));
        }
        let halves = Array::from_f64(DType::Bf16, [1.5, -2.0]);
        assert_eq!(parse(&to_bytes(&[2], &halves)), Ok((vec![2], Array::F32(vec![1.5, -2.0]))));
    }

    #[test]
    fn every_type_reads_back_and_a_torn_file_is_refused() {
        let content: Vec<u8> = [1.5f32, -2.0, 3.25].iter().flat_map(|v| v.to_le_bytes()).collect();
        let (shape, array) = parse(&saved("<f4", "(3,)", &content)).unwrap();
        assert_eq!((shape, array.to_f64()), (vec![3], vec![1.5, -2.0, 3.25]));
        let (shape, array) = parse(&saved("<i4", "(1, 2)", &[7, 0, 0, 0, 9, 0, 0, 0])).unwrap();
        assert_eq!((shape, array), (vec![1, 2], Array::I32(vec![7, 9])));
        let (_, array) = parse(&saved("<f2", "(2,)", &[0x00, 0x3c, 0x00, 0xc1])).unwrap();
        assert_eq!(array.to_f64(), [1.0, -2.5]);
        assert!(parse(&saved("<f4", "(4,)", &content)).unwrap_err().contains("ends early"));
        assert!(parse(&saved("<c8", "(1,)", &content)).unwrap_err().contains("'<c8'"));
        assert!(parse(b"hello").unwrap_err().contains("numpy.save"));
        let whole = saved("<f4", "(3,)", &content);
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_err());
        }
    }
}
