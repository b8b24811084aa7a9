//! Width: how the elements lie that a right answer is computed of. The inputs of a problem come in; their addresses and
//! what the kernel has to be compiled with go out.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::oracle::Inputs;
use warplap_core::slot::{Signature, Slot};
use warplap_cuda::{Cuda, View, dtype_code};

use super::refused;

/// How elements lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// As the problem says.
    Own,
    /// In double precision, all that are not whole numbers.
    Double,
}

impl Width {
    /// The facts of a problem for elements of this width. Tables of another type are as wide as all others.
    pub(crate) fn facts(self, mut facts: Vec<(&'static str, i64)>) -> Vec<(&'static str, i64)> {
        for (name, value) in facts.iter_mut().filter(|_| self == Width::Double) {
            match *name {
                "DTYPE" => *value = dtype_code(DType::F64),
                "WIDENED" => *value = 0,
                _ => {}
            }
        }
        facts
    }

    fn dtype(self, own: DType) -> DType {
        match own {
            DType::F16 | DType::Bf16 | DType::F32 if self == Width::Double => DType::F64,
            other => other,
        }
    }
}

/// The addresses of inputs by slot, zero where nothing is read. Refuses what was not drawn for the signature.
pub(crate) fn addresses<const N: usize>(signature: &Signature, inputs: &Inputs<'_, Cuda>) -> Result<[u64; N], Error> {
    held(Width::Own, signature, inputs)
}

/// How inputs lie, and their addresses. Refuses what was neither drawn for the signature nor made wide of that.
pub(crate) fn width_and_addresses<const N: usize>(
    signature: &Signature,
    inputs: &Inputs<'_, Cuda>,
) -> Result<(Width, [u64; N]), Error> {
    let doubles = inputs.iter().flatten().any(|view| view.dtype() == DType::F64);
    let width = if doubles { Width::Double } else { Width::Own };
    Ok((width, held(width, signature, inputs)?))
}

fn held<const N: usize>(width: Width, signature: &Signature, inputs: &Inputs<'_, Cuda>) -> Result<[u64; N], Error> {
    let slots = signature.slots();
    let holds = |(slot, input): (&Slot, &Option<View<'_>>)| {
        let is_right = |view: &View<'_>| view.dtype() == width.dtype(slot.dtype) && view.len() >= slot.len();
        !slot.is_read() || input.as_ref().is_some_and(is_right)
    };
    if (inputs.len(), slots.len()) != (N, N) || !slots.iter().zip(inputs).all(holds) {
        return Err(refused("it takes the inputs that were drawn for the problem"));
    }
    Ok(std::array::from_fn(|i| inputs[i].filter(|_| slots[i].is_read()).map_or(0, |view| view.address())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that nobody reads.
    fn at(address: u64, dtype: DType, len: usize) -> Option<View<'static>> {
        // SAFETY: only its address, type and length are asked for.
        Some(unsafe { View::from_raw(address, dtype, len) })
    }

    fn signature() -> Signature {
        let of = |name, dtype| Slot::input(name, dtype, &[4]);
        let table = of("table", DType::F32);
        Signature(vec![of("x", DType::Bf16), table, of("at", DType::I32), Slot::output("y", DType::Bf16, &[4])])
    }

    #[test]
    fn inputs_lie_as_they_were_drawn_or_are_doubles_all_of_them() {
        let (x, table, whole) = (at(16, DType::Bf16, 4), at(32, DType::F32, 4), at(48, DType::I32, 5));
        let (wide_x, wide_table) = (at(16, DType::F64, 4), at(32, DType::F64, 4));
        let answer = |inputs: [Option<View<'_>>; 4]| width_and_addresses::<4>(&signature(), &inputs).ok();
        assert_eq!(answer([x, table, whole, None]), Some((Width::Own, [16, 32, 48, 0])));
        assert_eq!(answer([wide_x, wide_table, whole, None]), Some((Width::Double, [16, 32, 48, 0])));
        // One of each, too few, nothing, and whole numbers that are none.
        assert_eq!(answer([wide_x, table, whole, None]), None);
        assert_eq!(answer([at(16, DType::Bf16, 3), table, whole, None]), None);
        assert_eq!(answer([None, table, whole, None]), None);
        assert_eq!(answer([wide_x, wide_table, at(48, DType::F64, 4), None]), None);
        assert!(addresses::<4>(&signature(), &[wide_x, wide_table, whole, None]).is_err());
    }

    #[test]
    fn kernels_are_told_that_all_is_double() {
        let facts = || vec![("DTYPE", 1), ("WIDENED", 1), ("D", 1)];
        assert_eq!(Width::Own.facts(facts()), facts());
        assert_eq!(Width::Double.facts(facts()), [("DTYPE", 3), ("WIDENED", 0), ("D", 1)]);
    }
}
