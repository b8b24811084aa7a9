//! Where slots lie that `attention_grad` has in other places.

use crate::attention_grad::cpu::call::Places;
use crate::attention_mask_grad::slot;

/// The places of the gradient of a mask.
pub(super) const PLACES: Places = Places { slopes: slot::SLOPES, seed: slot::SEED, offsets: None };
