//! The rival: CubeCL's `LocalTuner`, called as Burn calls it. Shapes come in; a candidate that does nothing is run.
//!
//! What is left out makes the rival look better, not worse: inputs are three numbers instead of tensors, and without
//! persistence a hit does not check for a switched environment.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use cubecl_common::device::DeviceId;
use cubecl_runtime::client::Client;
use cubecl_runtime::tune::{AutotuneKey, LocalTuner, Tunable, TunableSet, anchor, local_tuner};
use serde::{Deserialize, Serialize};

/// Records, and the milliseconds CubeCL 0.11.3 took to start with them (`Tuner::new`), least and most: `burn.md`, §4.
pub const OPEN_FROM_NOTES: [(u64, f64, f64); 2] = [(10_000, 105.0, 159.0), (100_000, 930.0, 1_110.0)];

/// The shape of one product.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Elem {
    F32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Layout {
    Contiguous,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Scale {
    Small,
    Medium,
    Large,
}

/// The facts of Burn's own matmul key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct MatmulKey {
    m: usize,
    n: usize,
    k: usize,
    lhs_pow2_factor: u8,
    lhs_stride_factor: u8,
    rhs_pow2_factor: u8,
    rhs_stride_factor: u8,
    elems: [Elem; 3],
    lhs_layout: Layout,
    rhs_layout: Layout,
    scale: Scale,
}

impl fmt::Display for MatmulKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl AutotuneKey for MatmulKey {}

fn key(shape: &Shape) -> MatmulKey {
    let anchored = |size| anchor(size, None, None, None);
    let factor = |size: usize, most: u32| size.trailing_zeros().min(most) as u8;
    let (m, n, k) = (anchored(shape.m), anchored(shape.n), anchored(shape.k));
    MatmulKey {
        m,
        n,
        k,
        lhs_pow2_factor: factor(k, 4),
        lhs_stride_factor: factor(shape.k, 10),
        rhs_pow2_factor: factor(n, 4),
        rhs_stride_factor: factor(shape.n, 10),
        elems: [Elem::F32, Elem::F32, Elem::F32],
        lhs_layout: Layout::Contiguous,
        rhs_layout: Layout::Contiguous,
        scale: match m.max(n).max(k) {
            0..512 => Scale::Small,
            512..2_048 => Scale::Medium,
            _ => Scale::Large,
        },
    }
}

/// As `CubeTuneId`: the device's numbers and the runtime's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TuneId {
    device: DeviceId,
    name: &'static str,
}

impl fmt::Display for TuneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device-{}-{}-{}", self.device.type_id, self.device.index_id, self.name)
    }
}

type Set = TunableSet<MatmulKey, Shape, ()>;

fn candidates() -> Set {
    let candidate = |name| {
        Tunable::new(name, |shape: Shape| {
            black_box(shape);
            Ok::<(), String>(())
        })
    };
    ["naive", "unit", "simple", "double"]
        .into_iter()
        .map(candidate)
        .fold(TunableSet::new_cloning_inputs(key), Set::with)
}

static TUNER: LocalTuner<MatmulKey, TuneId> = local_tuner!();

/// A device with a tuner that knows the shapes given to [`Rival::tuned`].
pub struct Rival {
    device: DeviceId,
    client: Client,
    set: Arc<Set>,
}

impl Rival {
    pub fn tuned(shapes: &[Shape]) -> Self {
        let device = DeviceId::new(0, 0);
        let client = crate::null::client(device);
        let set = TUNER.init(&TuneId { device, name: client.name() }, candidates);
        let rival = Rival { device, client, set };
        shapes.iter().for_each(|shape| rival.hit(*shape));
        rival
    }

    fn id(&self) -> TuneId {
        TuneId { device: self.device, name: self.client.name() }
    }

    /// What every operation of Burn does: `init`, then `execute`.
    #[inline]
    pub fn hit(&self, shape: Shape) {
        let id = self.id();
        let set = TUNER.init(&id, candidates);
        TUNER.execute(&id, &self.client, set, shape);
    }

    /// `execute` alone, with the set kept by the caller.
    #[inline]
    pub fn execute(&self, shape: Shape) {
        TUNER.execute(&self.id(), &self.client, self.set.clone(), shape);
    }
}
