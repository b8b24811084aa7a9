//! The adapter over an operation's slots: a problem and one thing a slot come in; the kernel of choice runs on their
//! memory, and new tensors for the slots that are written go out. It knows no operation: whatever is in the registry
//! runs through here.

use std::sync::Arc;

use warplap::core::arg::ScalarArg;
use warplap::core::device::Device;
use warplap::core::slot::Slot;
use warplap::ops::registry::Known;
use warplap::{Arg, Error};

use crate::backends::end_to_end_race;
use crate::backends::place::{Place, copied};
use crate::op_dispatcher::Entry;
use crate::ops::structure::Indices;
use crate::tensor::tensor_layout::wrong;

/// What a call gives for one slot.
#[derive(Clone, Debug, Default)]
pub enum Slotted<T> {
    /// Nothing: the problem does not have the slot, or it is written and made here.
    #[default]
    Absent,
    /// A tensor.
    Tensor(T),
    /// Indices that were checked.
    #[doc(hidden)]
    Indices(Arc<Indices>),
    /// A number.
    Scalar(ScalarArg),
}

impl<T> From<Option<T>> for Slotted<T> {
    fn from(tensor: Option<T>) -> Self {
        tensor.map_or(Slotted::Absent, Slotted::Tensor)
    }
}

/// How a call is made.
pub(crate) struct Manner<'m, P: Place> {
    /// Whether indices were checked already.
    pub(crate) promised: bool,
    /// Burn's own way to the same outputs, where it has one.
    pub(crate) burns_own: Option<&'m dyn Fn() -> Vec<P::Tensor>>,
}

impl<P: Place> Manner<'_, P> {
    /// Indices are looked at.
    pub(crate) const CHECKED: Self = Manner { promised: false, burns_own: None };
    /// Indices were checked already.
    pub(crate) const PROMISED: Self = Manner { promised: true, burns_own: None };
}

/// Runs a problem on what is given by slot; gives the slots that are written, in order: each new, one dimension long,
/// and as its slot lies.
pub(crate) fn launch<P: Place, O: Known>(
    problem: &O::Problem,
    tensor_list: Vec<Slotted<P::Tensor>>,
    manner: &Manner<'_, P>,
) -> Result<Vec<P::Tensor>, Error> {
    let beside = tensor_list.iter().find_map(|g| if let Slotted::Tensor(t) = g { Some(t.clone()) } else { None });
    let beside = beside.ok_or_else(|| wrong("the arguments", "there is no tensor among them, expected one or more"))?;
    let dispatchers = P::dispatchers(&beside)?;
    let dispatcher = P::dispatcher::<O>(&dispatchers);
    let device = &*dispatchers.device;
    let run = |entry: &Entry, tensor_list: Vec<Slotted<P::Tensor>>| {
        let mut tensors = settled::<P>(entry, tensor_list, &beside)?;
        let pinned = |t: &Slotted<P::Tensor>| if let Slotted::Tensor(t) = t { P::pin(t).map(Some) } else { Ok(None) };
        let pins = tensors.iter().map(pinned).collect::<Result<Vec<Option<P::Pin>>, Error>>()?;
        let slots = entry.signature.slots();
        let lending = tensors.iter_mut().zip(slots).zip(&pins);
        let args = lending.map(|((tensor, slot), pin)| lend::<P>(tensor, slot, pin.as_ref(), device));
        let mut args = args.collect::<Result<Vec<Arg<'_, P::Device>>, Error>>()?;
        if !manner.promised {
            P::check::<O>(problem, &args, device)?;
        }
        P::between(&beside, device, |queue| dispatcher.tuner.launch(problem, &mut args, queue))?;
        drop(args);
        let written = tensors.into_iter().zip(slots).filter(|(_, slot)| slot.is_written());
        Ok(written.filter_map(|(t, _)| if let Slotted::Tensor(t) = t { Some(t) } else { None }).collect())
    };
    dispatcher.with(problem, device.queue(), |entry| {
        let Some(burns_own) = manner.burns_own else { return run(entry, tensor_list) };
        let ours = || run(entry, tensor_list.clone());
        let is_burns = match (entry.burns_own.get(), entry.signature.written().next()) {
            (Some(known), _) => *known,
            (None, Some(slot)) if P::RACES_END_TO_END => {
                let won = end_to_end_race::burns_own_wins::<P>(slot, &beside, &ours, burns_own)?;
                *entry.burns_own.get_or_init(|| won)
            }
            (None, _) => false,
        };
        if is_burns { Ok(burns_own()) } else { run(entry, tensor_list) }
    })
}

/// One thing a slot: what is given, held to the slot, and new tensors where a slot is written.
fn settled<P: Place>(
    entry: &Entry,
    tensor_list: Vec<Slotted<P::Tensor>>,
    beside: &P::Tensor,
) -> Result<Vec<Slotted<P::Tensor>>, Error> {
    let slots = entry.signature.slots();
    if tensor_list.len() > slots.len() {
        let (got, most) = (tensor_list.len(), slots.len());
        return Err(wrong("the arguments", format!("there are {got}, expected at most {most}")));
    }
    let all = tensor_list.into_iter().chain(std::iter::repeat_with(Slotted::default)).zip(slots);
    let settle = |(tensor_list, slot): (Slotted<P::Tensor>, &Slot)| {
        Ok(match (tensor_list, slot.is_written(), slot.is_read()) {
            (Slotted::Absent, true, false) => Slotted::Tensor(P::empty(beside, slot.dtype, slot.len())?),
            (Slotted::Tensor(_), true, false) => {
                return Err(wrong(&slot.name, "is given, but it is written: leave it out, a new tensor is made"));
            }
            // Written over in place: the caller's own tensor stays as it is.
            (Slotted::Tensor(tensor), true, true) => Slotted::Tensor(copied::<P>(tensor)),
            (other, ..) => other,
        })
    };
    all.map(settle).collect()
}

/// What a kernel is given for a slot.
fn lend<'a, P: Place>(
    tensor: &'a mut Slotted<P::Tensor>,
    slot: &Slot,
    pin: Option<&'a P::Pin>,
    device: &P::Device,
) -> Result<Arg<'a, P::Device>, Error> {
    match (tensor, pin) {
        (Slotted::Tensor(tensor), Some(pin)) if slot.present => match slot.is_written() {
            true => Ok(Arg::Write(P::write(tensor, pin, slot.len())?)),
            false => {
                let tensor_layout = P::layout_of(tensor, &slot.name)?;
                if !<P::Device as Device>::LAUNCH_IS_CALL && tensor_layout.align < slot.align as u64 {
                    let reason = format!("does not lie on a multiple of {} bytes, expected one that does", slot.align);
                    return Err(wrong(&slot.name, reason));
                }
                Ok(Arg::Read(P::read(tensor, pin, slot.len())?))
            }
        },
        (Slotted::Tensor(_), _) => Err(wrong(&slot.name, "is given, the problem has none: leave it out")),
        (Slotted::Indices(indices), _) => Ok(Arg::Read(P::indices(indices, device)?)),
        (Slotted::Scalar(number), _) => Ok(Arg::Scalar(*number)),
        (Slotted::Absent, _) => Ok(Arg::Absent),
    }
}
