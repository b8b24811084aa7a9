//! A twin as a variant: what `warplap_core::variant::Variant` asks for, answered from the plan.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::resources::Resources;
use warplap_core::slot::{Signature, Slot};
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{Chip, Cuda, Stream};

use super::launch::Loaded;
use super::plan::{self, CudaKernelSpec, PrePostLaunches};

/// What a launch checks of the addresses of N slots: the bytes each is a multiple of, as masks, since a division is
/// what a launch has no time for.
pub(crate) struct Aligns<const N: usize> {
    masks: [u64; N],
    names: [Cow<'static, str>; N],
}

impl<const N: usize> Aligns<N> {
    /// Those of a signature of N slots.
    pub(crate) fn of(signature: &Signature) -> Result<Self, Rejection> {
        let refused = |reason: String| Rejection::DoesNotBuild { reason };
        let count = signature.slots().len();
        let slots: &[Slot; N] = signature
            .slots()
            .try_into()
            .map_err(|_| refused(format!("a kernel of {N} slots, a problem of {count}")))?;
        if let Some(slot) = slots.iter().find(|s| !s.align.is_power_of_two()) {
            return Err(refused(format!("{} bytes, the alignment of {}, are no power of two", slot.align, slot.name)));
        }
        Ok(Aligns {
            masks: slots.each_ref().map(|s| s.align as u64 - 1),
            names: slots.each_ref().map(|s| s.name.clone()),
        })
    }

    #[cold]
    fn refusal(&self, at: &[u64; N]) -> Rejection {
        let odd = (0..N).find(|i| at[*i] & self.masks[*i] != 0).unwrap_or(0);
        let (name, bytes) = (&self.names[odd], self.masks[odd] + 1);
        Rejection::LaunchFailed { reason: format!("{name} is not aligned to {bytes} bytes as the problem says") }
    }
}

/// The addresses of arguments in the order of their slots, 0 where there is no buffer.
#[inline]
pub(crate) fn addresses<const N: usize>(args: &[Arg<'_, Cuda>], aligns: &Aligns<N>) -> Result<[u64; N], Rejection> {
    let args: &[Arg<'_, Cuda>; N] = args.try_into().map_err(|_| miscounted(args.len(), N))?;
    let (mut at, mut odd) = ([0; N], 0);
    for ((to, arg), mask) in at.iter_mut().zip(args).zip(&aligns.masks) {
        *to = match arg {
            Arg::Read(view) => view.address(),
            Arg::Write(view) => view.address(),
            Arg::Absent | Arg::Scalar(_) => 0,
        };
        odd |= *to & mask;
    }
    if odd == 0 { Ok(at) } else { Err(aligns.refusal(&at)) }
}

#[cold]
fn miscounted(count: usize, expected: usize) -> Rejection {
    Rejection::LaunchFailed { reason: format!("{count} arguments were given, the kernel takes {expected}") }
}

/// A twin as a variant.
pub(crate) struct Own<O, T, const N: usize> {
    twin: T,
    op: PhantomData<fn() -> O>,
}

impl<O: Op, T: CudaKernelSpec<O::Problem>, const N: usize> Own<O, T, N> {
    /// The variant of a twin.
    pub(crate) fn new(twin: T) -> Self {
        Own { twin, op: PhantomData }
    }
}

impl<O: Op, T: CudaKernelSpec<O::Problem>, const N: usize> Variant<O, Cuda> for Own<O, T, N> {
    fn id(&self) -> &str {
        self.twin.id()
    }

    fn source(&self) -> SourceHash {
        source!(&self.twin.source().0)
    }

    fn fit(&self, p: &O::Problem, cuda: &Cuda) -> Fit {
        self.twin.fit(p, cuda.chip())
    }

    fn space(&self, p: &O::Problem, cuda: &Cuda) -> Space {
        plan::space(&self.twin, p, cuda.chip())
    }

    fn needs(&self, p: &O::Problem, config: &Config) -> Needs {
        // The chip decides the depth of the pipeline, and a plan that does not fit is refused when it is made.
        let plan = self.twin.plan(p, config, &Chip::h200());
        plan.map_or(Needs::default(), |plan| Needs {
            threads: u64::from(plan.threads),
            workspace: 4 * plan.scratch().words,
            ..Needs::default()
        })
    }

    fn compile(&self, p: &O::Problem, config: &Config, cuda: &Cuda) -> Result<(), Rejection> {
        let (plan, PrePostLaunches { first, last }) = plan::plan(&self.twin, p, config, cuda.chip())?;
        first.iter().chain([&plan]).chain(&last).try_for_each(|plan| cuda.compile(&plan.source))
    }

    fn build(&self, p: &O::Problem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        let aligns = Aligns::<N>::of(&O::signature(p))?;
        let (plan, PrePostLaunches { first, last }) = plan::plan(&self.twin, p, config, cuda.chip())?;
        let load = |plan| Loaded::<N>::new(plan, cuda);
        let all = |plans: Vec<plan::Plan>| plans.into_iter().map(load).collect::<Result<Box<[_]>, _>>();
        let chain = !(first.is_empty() && last.is_empty());
        let queueing = chain.then(Mutex::default);
        Ok(Box::new(Built { aligns, loaded: load(plan)?, first: all(first)?, last: all(last)?, queueing }))
    }
}

struct Built<const N: usize> {
    aligns: Aligns<N>,
    loaded: Loaded<N>,
    first: Box<[Loaded<N>]>,
    last: Box<[Loaded<N>]>,
    /// Of a chain: held while it is queued, so that no other thread's comes between kernels of one scratch.
    queueing: Option<Mutex<()>>,
}

impl<const N: usize> Kernel<Cuda> for Built<N> {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let at = addresses(args, &self.aligns)?;
        let _one = self.queueing.as_ref().map(|queueing| queueing.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: the plan is the twin's, which lists the entry's parameters; the catalog hands out kernels that refuse
        // other arguments than the signature's, so that the buffers hold what the problem spans, and the views borrow
        // them. Kernels beside it reach into its scratch no further than it does.
        unsafe {
            let room = self.loaded.room(queue)?;
            for one in &self.first {
                one.launch_in(&at, room, queue)?;
            }
            self.loaded.launch_in(&at, room, queue)?;
            for one in &self.last {
                one.launch_in(&at, room, queue)?;
            }
        }
        Ok(())
    }

    fn workspace(&self) -> u64 {
        self.loaded.workspace()
    }

    fn resources(&self) -> Option<Resources> {
        self.loaded.resources()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_core::dtype::DType;
    use warplap_cuda::{View, ViewMut};

    #[test]
    fn addresses_come_in_the_order_of_slots_and_an_odd_one_is_named() {
        let slots = vec![
            Slot::input("a", DType::F16, &[8]).aligned(16),
            Slot::input("bias", DType::F16, &[8]).when(false),
            Slot::output("c", DType::F16, &[8]).aligned(4),
        ];
        let aligns = Aligns::<3>::of(&Signature(slots.clone())).unwrap();
        let addresses_of = |a, c| {
            // SAFETY: nothing is launched on them.
            let (a, c) = unsafe { (View::from_raw(a, DType::F16, 8), ViewMut::from_raw(c, DType::F16, 8)) };
            addresses(&[Arg::Read(a), Arg::Absent, Arg::Write(c)], &aligns)
        };
        assert_eq!(addresses_of(32, 20), Ok([32, 0, 20]));
        assert!(addresses_of(24, 20).unwrap_err().to_string().contains("a is not aligned to 16 bytes"));
        assert!(addresses_of(32, 18).unwrap_err().to_string().contains("c is not aligned to 4 bytes"));
        assert!(addresses(&[], &aligns).is_err() && Aligns::<2>::of(&Signature(slots)).is_err());
    }
}
