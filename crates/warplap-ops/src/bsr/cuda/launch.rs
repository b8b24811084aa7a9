//! A block-sparse twin as a variant: its launches hand the kernel an order of the block rows beside the slots.
//!
//! The order is made at the first launch on a matrix (its indices are read back once, a millisecond or so) and kept by
//! the addresses of the indices for as long as the kernel lives. A stream that is being captured gets none that is not
//! there yet. Should other indices come to lie at the same address, the order is merely not the best.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::candidate::SourceHash;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::resources::Resources;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{Buffer, Chip, Cuda, Stream, View};

use super::order::order;
use super::plan::{BUFFERS, BsrKernelSpec, COL_IDX, ROW_PTR};
use super::queue::Queue;
use super::turned::Turned;
use super::widened::{self, Widened};
use crate::bsr::{Bsr, BsrProblem, SLOTS};
use crate::cuda::launch::Loaded;
use crate::cuda::own::{Aligns, addresses};
use crate::cuda::plan::{plan, space};

/// Matrices whose orders are kept; none is ever freed before the kernel is, since graphs may hold its address.
const KEPT: usize = 64;

/// A twin as a variant.
pub(super) struct OverBlocks<T>(pub(super) T);

impl<T: BsrKernelSpec> OverBlocks<T> {
    /// The problem as the twin sees it: with longer rows, where it takes those alone.
    fn seen(&self, p: &BsrProblem, chip: &Chip) -> BsrProblem {
        match widened::wider(p) {
            Some(wide) if matches!(self.0.fit(p, chip), Fit::Aside(_)) => wide,
            _ => *p,
        }
    }
}

impl<T: BsrKernelSpec> Variant<Bsr, Cuda> for OverBlocks<T> {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn source(&self) -> SourceHash {
        source!(&self.0.source().0)
    }

    fn fit(&self, p: &BsrProblem, cuda: &Cuda) -> Fit {
        self.0.fit(&self.seen(p, cuda.chip()), cuda.chip())
    }

    fn space(&self, p: &BsrProblem, cuda: &Cuda) -> Space {
        space(&self.0, &self.seen(p, cuda.chip()), cuda.chip())
    }

    fn needs(&self, p: &BsrProblem, config: &Config) -> Needs {
        let seen = self.seen(p, &Chip::h200());
        let plan = self.0.plan(&seen, config, &Chip::h200());
        let turned = if self.0.is_turning() { 0 } else { Turned::workspace(p) };
        let workspace = turned + if seen == *p { 0 } else { widened::workspace(p) };
        plan.map_or(Needs::default(), |plan| Needs { threads: u64::from(plan.threads), workspace, ..Needs::default() })
    }

    fn compile(&self, p: &BsrProblem, config: &Config, cuda: &Cuda) -> Result<(), Rejection> {
        let seen = self.seen(p, cuda.chip());
        cuda.compile(&self.0.plan(&seen, config, cuda.chip())?.source)?;
        if seen != *p {
            cuda.compile(&widened::source(p))?;
        }
        if self.0.is_turning() { Ok(()) } else { Turned::compile(p, cuda) }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        let seen = self.seen(p, cuda.chip());
        Ok(Box::new(Built {
            problem: *p,
            aligns: Aligns::of(&Bsr::signature(p))?,
            loaded: Loaded::new(plan(&self.0, &seen, config, cuda.chip())?.0, cuda)?,
            together: self.0.together(&seen, config)?,
            orders: Orders::default(),
            turned: if self.0.is_turning() { Turned::none() } else { Turned::new(p, cuda)? },
            widened: if seen == *p { Widened::none() } else { Widened::new(p, cuda)? },
            tiles: Queue::new(self.0.has_queue(config)?),
        }))
    }
}

struct Built {
    problem: BsrProblem,
    aligns: Aligns<SLOTS>,
    loaded: Loaded<BUFFERS>,
    together: usize,
    orders: Orders,
    turned: Turned,
    widened: Widened,
    tiles: Queue,
}

impl Kernel<Cuda> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let slots = addresses(args, &self.aligns)?;
        let order = if self.together == 0 { 0 } else { self.order(args, queue)? };
        let tiles = self.tiles.address(queue)?;
        self.widened.with(&slots, queue, |slots| {
            self.turned.with(slots, queue, |values| {
                let [row_ptr, col_idx, _, b, c, add, place] = *slots;
                let at = [row_ptr, col_idx, values, b, c, add, place, order, tiles];
                // SAFETY: the plan is the twin's, which lists the entry's parameters; the catalog hands out kernels
                // that refuse other arguments than the signature's, so that the buffers hold what the problem spans
                // (copies are as long as the rows the twin sees), the views borrow them, and the caller vouches for
                // the indices.
                unsafe { self.loaded.launch(&at, queue) }
            })
        })
    }

    fn workspace(&self) -> u64 {
        self.turned.bytes() + self.widened.bytes()
    }

    fn resources(&self) -> Option<Resources> {
        self.loaded.resources()
    }
}

impl Built {
    fn order(&self, args: &[Arg<'_, Cuda>], queue: &Stream) -> Result<u64, Rejection> {
        let indices = [args[ROW_PTR].read()?, args[COL_IDX].read()?];
        Ok(self.orders.address(&indices, queue, || made(&self.problem, self.together, &indices, queue)))
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
    fn address(&self, indices: &[View<'_>; 2], queue: &Stream, made: impl FnOnce() -> Option<Buffer>) -> u64 {
        let of = indices.each_ref().map(View::address);
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
        let Some(rows) = made() else { return 0 };
        let address = rows.address();
        let mut all = self.known.load().to_vec();
        all.push(Arc::new(Order { of, rows }));
        self.known.store(Arc::new(all));
        address
    }
}

/// Reads the indices back, orders the rows and uploads the order. A failure costs the order, not the launch.
fn made(p: &BsrProblem, together: usize, indices: &[View<'_>; 2], queue: &Stream) -> Option<Buffer> {
    let [row_ptr, col_idx] = [queue.read(&indices[0]).ok()?, queue.read(&indices[1]).ok()?];
    // Buffers may be longer than the matrix.
    let row_ptr = row_ptr.indices()?.get(..p.rows() + 1)?;
    let rows = order(row_ptr, col_idx.indices()?, p.columns(), together);
    queue.upload(&Array::I32(rows)).ok()
}
