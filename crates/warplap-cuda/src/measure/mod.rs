//! What times are measured by: the clock, the launch in front of a timed one, ceilings, and readings of the card.

pub(crate) mod ceilings;
pub(crate) mod clock;
pub(crate) mod neutral;
pub(crate) mod nvml;
pub(crate) mod times;
