//! A block-sparse twin as a variant: its launches check the buffers and hand the kernel an order of the block rows.
//!
//! The order is made at the first launch on a matrix (its indices are read back once, a millisecond or so) and kept by the
//! addresses of the indices for as long as the kernel lives. A stream that is being captured gets none that is not
//! there yet. Should other indices come to lie at the same address, the order is merely not the best.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use warplap_core::array::Array;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{Buffer, Chip, Cuda, Stream};

use super::order::order;
use super::plan::{BUFFERS, BsrTwin, scale_of};
use super::queue::Queue;
use super::turned::{self, Turned};
use crate::bsr::{Bsr, BsrArgs, BsrProblem};
use crate::cuda::launch::Loaded;

/// Matrices whose orders are kept; none is ever freed before the kernel is, since graphs may hold its address.
const KEPT: usize = 64;

/// A twin as a variant.
pub(super) struct Own<T>(pub(super) T);

impl<T: BsrTwin> Variant<Bsr, Cuda> for Own<T> {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn source(&self) -> SourceHash {
        let [kernel, twin] = self.0.texts();
        let shared = [include_str!("plan.rs"), include_str!("launch.rs"), include_str!("order.rs")].concat();
        let headers =
            [warplap_cuda::HOPPER.1, warplap_cuda::SCALED.1, warplap_cuda::SMALL_BLOCKS.1, turned::TEXT].concat();
        SourceHash::of(&[kernel, twin, &shared, &headers])
    }

    fn fit(&self, p: &BsrProblem, cuda: &Cuda) -> Fit {
        self.0.fit(p, cuda.chip())
    }

    fn space(&self, p: &BsrProblem, cuda: &Cuda) -> Space {
        self.0.space(p, cuda.chip())
    }

    fn needs(&self, p: &BsrProblem, config: &Config) -> Needs {
        let plan = self.0.plan(p, config, &Chip::h200());
        let workspace = Turned::workspace(p);
        plan.map_or(Needs::default(), |plan| Needs { threads: u64::from(plan.threads), workspace, ..Needs::default() })
    }

    fn build(&self, p: &BsrProblem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Bsr, Cuda>>, Rejection> {
        let together = self.0.together(p, config)?;
        let loaded = Loaded::new(self.0.plan(p, config, cuda.chip())?, cuda)?;
        let (turned, tiles) = (Turned::new(p, cuda)?, Queue::new(self.0.has_queue(config)?));
        Ok(Box::new(Built { problem: *p, loaded, together, orders: Orders::default(), turned, tiles }))
    }
}

struct Built {
    problem: BsrProblem,
    loaded: Loaded<BUFFERS>,
    together: usize,
    orders: Orders,
    turned: Turned,
    tiles: Queue,
}

/// The addresses of a launch without the order, after checking that the buffers hold what the problem spans and lie
/// where 16 bytes can be read at once.
pub(super) fn addresses(built: &BsrProblem, args: &BsrArgs<'_, Cuda>) -> Result<[u64; 5], Rejection> {
    let refused = |reason: String| Rejection::LaunchFailed { reason };
    if !args.problem.is_served_by(built) {
        return Err(refused("a kernel was launched for another problem than it was built for".into()));
    }
    args.check_spans().map_err(|e| refused(e.to_string()))?;
    let at =
        [args.row_ptr.address(), args.col_idx.address(), args.values.address(), args.b.address(), args.c.address()];
    let add = args.add.as_ref().filter(|_| built.adds()).map_or(at[4], |add| add.address());
    for (name, address) in [("values", at[2]), ("b", at[3]), ("c", at[4]), ("add", add)] {
        if !address.is_multiple_of(16) {
            return Err(refused(format!("{name} must lie on a multiple of 16 bytes: copy it to a buffer of its own")));
        }
    }
    Ok(at)
}

impl Kernel<Bsr, Cuda> for Built {
    fn launch(&self, args: BsrArgs<'_, Cuda>, queue: &Stream) -> Result<(), Rejection> {
        let [row_ptr, col_idx, _, b, c] = addresses(&self.problem, &args)?;
        let order = if self.together == 0 { 0 } else { self.orders.address(self.together, &args, queue) };
        let ([add, alpha, beta], tiles) = (scale_of(&args), self.tiles.address(queue)?);
        self.turned.with(&args, queue, |values| {
            let at = [row_ptr, col_idx, values, b, c, order, add, alpha, beta, tiles];
            // SAFETY: the plan is the twin's, which lists the entry's parameters; the buffers were checked to hold what the
            // problem spans, the views borrow them, and the caller vouches for the indices.
            unsafe { self.loaded.launch(&at, queue) }
        })
    }

    fn workspace(&self) -> u64 {
        Turned::workspace(&self.problem)
    }
}

struct Order {
    of: [u64; 2],
    rows: Buffer,
}

#[derive(Default)]
struct Orders {
    known: ArcSwap<Vec<Arc<Order>>>,
    making: Mutex<()>,
}

impl Orders {
    /// The address of the order for a matrix, or 0 where there is none.
    fn address(&self, together: usize, args: &BsrArgs<'_, Cuda>, queue: &Stream) -> u64 {
        let of = [args.row_ptr.address(), args.col_idx.address()];
        let find = || self.known.load().iter().find(|o| o.of == of).map(|o| o.rows.address());
        if let Some(known) = find() {
            return known;
        }
        let _one = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = find() {
            return known;
        }
        if self.known.load().len() >= KEPT || queue.is_capturing().unwrap_or(true) {
            return 0;
        }
        let Some(rows) = made(together, args, queue) else { return 0 };
        let address = rows.address();
        let mut all = self.known.load().to_vec();
        all.push(Arc::new(Order { of, rows }));
        self.known.store(Arc::new(all));
        address
    }
}

/// Reads the indices back, orders the rows and uploads the order. A failure costs the order, not the launch.
fn made(together: usize, args: &BsrArgs<'_, Cuda>, queue: &Stream) -> Option<Buffer> {
    let (row_ptr, col_idx) = (queue.read(&args.row_ptr).ok()?, queue.read(&args.col_idx).ok()?);
    let rows = order(row_ptr.indices()?, col_idx.indices()?, args.problem.columns(), together);
    queue.upload(&Array::I32(rows)).ok()
}
