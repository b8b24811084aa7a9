//! What changes between timed launches: a slot and its memory come in; a spot that a clock may stir goes out. Who
//! remembers inputs or outputs of the launch before then gains nothing, and is found out.

use crate::model::array::Array;
use crate::model::slot::{Role, Slot};
use crate::prove::case::poison_of;

/// What is done in one place between two timed launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stir {
    /// Two elements of an input change places.
    Swap,
    /// One element of an output becomes these bits, which the next launch must overwrite.
    Poison(u64),
}

/// One place in a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerturbedSpot {
    /// The address of its first element.
    pub at: u64,
    /// How many elements follow from there without a gap.
    pub elements: usize,
    /// Bytes of one element.
    pub bytes: usize,
    /// What is done to them.
    pub perturb: Stir,
}

impl PerturbedSpot {
    /// The spot of a slot whose first element is at an address. Whole numbers stay: they are places in other slots as
    /// often as not. So do single bytes: the poison could be a right answer.
    pub(crate) fn of(slot: &Slot, at: u64) -> Option<PerturbedSpot> {
        let (dtype, bytes) = (slot.dtype, slot.dtype.bytes());
        if bytes < 2 || slot.is_empty() {
            return None;
        }
        let perturb = match slot.role {
            Role::In if !dtype.is_whole() && !slot.steady => Stir::Swap,
            Role::Out => {
                let mut bits = [0; 8];
                let poison = Array::filled(dtype, 1, poison_of(dtype)).to_bytes();
                bits[..poison.len()].copy_from_slice(&poison);
                Stir::Poison(u64::from_le_bytes(bits))
            }
            _ => return None,
        };
        let elements = slot.padding().first().map_or(slot.len(), |gap| gap.start);
        Some(PerturbedSpot { at, elements, bytes, perturb })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::dtype::DType;

    #[test]
    fn numbers_change_places_outputs_are_poisoned_and_places_stay() {
        let spot = |slot: Slot| PerturbedSpot::of(&slot, 4096);
        assert_eq!(spot(Slot::input("x", DType::F16, &[3, 5])).unwrap().perturb, Stir::Swap);
        let written = spot(Slot::output("y", DType::F32, &[3, 5])).unwrap();
        let Stir::Poison(bits) = written.perturb else { panic!("{written:?}") };
        assert!(f32::from_bits(bits as u32).is_nan() && (written.at, written.elements, written.bytes) == (4096, 15, 4));
        assert_eq!(spot(Slot::input("columns", DType::I32, &[7])), None);
        assert_eq!(spot(Slot::input("read from a file", DType::F32, &[7]).steady()), None);
        assert_eq!(spot(Slot::in_out("z", DType::F32, &[7])), None);
        assert_eq!(spot(Slot::output("bytes", DType::U8, &[7])), None);
        assert_eq!(spot(Slot::input("absent", DType::F32, &[7]).when(false)), None);
    }

    #[test]
    fn what_lies_between_rows_is_nobodys() {
        let slot = Slot::output("y", DType::F32, &[3, 5]).strided(&[8, 1]);
        assert_eq!(PerturbedSpot::of(&slot, 0).unwrap().elements, 5);
    }
}
