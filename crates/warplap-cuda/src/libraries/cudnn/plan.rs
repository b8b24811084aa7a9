//! Plans: a graph comes in; the library's choice of a kernel for it, compiled, goes out and is queued with addresses
//! alone. A plan that was made once is kept as text beside the compiled kernels: from it the library takes a
//! millisecond, where compiling takes half a second.

use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warplap_worker::artifact::digest;

use super::descriptor::*;
use super::graph::{DnnGraph, DnnPlace};
use super::library::{Dnn, DnnOpaque};
use super::made::{Made, Target};
use crate::device::Cuda;
use crate::driver::{Context, Relaxed, Stream};
use crate::error::CudaError;

/// Tensors in the caller's memory at the most, the workspace among them.
const MOST: usize = 8;

/// Packs kept for launches to come: a timed rotation has a few dozen lists of addresses, a program one.
const KEPT: usize = 64;

/// The library's handles in one context.
pub(crate) struct DnnHandles {
    dnn: &'static Dnn,
    context: Arc<Context>,
    // The stream is a property of the handle: one launch at a time says which.
    launching: Mutex<DnnHandle>,
    // Another one, so that nobody who launches waits for a compiler.
    building: Mutex<DnnHandle>,
}

struct DnnHandle(DnnOpaque);

// SAFETY: the handle is used under its lock alone.
unsafe impl Send for DnnHandle {}

impl DnnHandles {
    pub(crate) fn open(context: &Arc<Context>) -> Result<Self, CudaError> {
        let dnn = Dnn::get()?;
        // Makes the context current: handles belong to it.
        context.api()?;
        let _relaxed = Relaxed::new(context);
        let handle = || {
            let mut at = null_mut();
            // SAFETY: the pointer is to a local; what is made is destroyed in `drop`.
            dnn.checked(unsafe { (dnn.create)(&mut at) }, "cudnnCreate").map(|()| Mutex::new(DnnHandle(at)))
        };
        let (launching, context) = (handle()?, context.clone());
        // Where the second cannot be made, the first goes with this object.
        let mut handles = DnnHandles { dnn, context, launching, building: Mutex::new(DnnHandle(null_mut())) };
        handles.building = handle()?;
        Ok(handles)
    }
}

impl Drop for DnnHandles {
    fn drop(&mut self) {
        let _ = self.context.api();
        for handle in [&mut self.launching, &mut self.building] {
            let DnnHandle(at) = handle.get_mut().unwrap_or_else(PoisonError::into_inner);
            if !at.is_null() {
                // SAFETY: made in `open`; every plan holds the desk, so none is left.
                unsafe { (self.dnn.destroy)(*at) };
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A graph with the kernel that was chosen for it.
pub struct DnnPlan {
    // Fields drop in order: descriptors go before the handles. They are for one thread at a time.
    state: Mutex<State>,
    handles: Arc<DnnHandles>,
    // Whether a launch was captured: a graph that nobody here knows of may run what the plan has loaded for ever.
    captured: AtomicBool,
    ids: Vec<i64>,
    // Numbers that come with each launch: the library reads them where they lie.
    values: Box<[u32]>,
    memories: usize,
    workspace: u64,
}

struct State {
    packs: Vec<([u64; MOST], Descriptor)>,
    next: usize,
    made: ManuallyDrop<Made>,
}

impl DnnPlan {
    /// The plan of the heuristics' `choice`-th proposal; `None` where they have fewer.
    pub fn choose(graph: &DnnGraph, choice: usize, cuda: &Cuda) -> Result<Option<DnnPlan>, CudaError> {
        let places = |is: fn(&DnnPlace) -> bool| {
            let tensors = graph.tensors().iter().enumerate();
            tensors.filter(move |(_, t)| is(&t.place)).map(|(at, _)| Made::id(at))
        };
        let mut ids: Vec<i64> = places(|p| matches!(p, DnnPlace::Memory(_))).collect();
        let memories = ids.len();
        if memories >= MOST {
            return Err(CudaError::Fit(format!("{memories} tensors in memory: expected fewer than {MOST}")));
        }
        ids.extend(places(|p| matches!(p, DnnPlace::Value(_))));
        let value = |place: DnnPlace| if let DnnPlace::Value(bits) = place { Some(bits) } else { None };
        let values = graph.tensors().iter().filter_map(|t| value(t.place)).collect();
        let handles = cuda.dnn()?;
        let Some(made) = Self::made(graph, choice, cuda, &handles)? else { return Ok(None) };
        let workspace = made.workspace()?;
        let state = Mutex::new(State { packs: Vec::new(), next: 0, made: ManuallyDrop::new(made) });
        Ok(Some(DnnPlan { state, handles, captured: AtomicBool::new(false), ids, values, memories, workspace }))
    }

    fn made(graph: &DnnGraph, choice: usize, cuda: &Cuda, handles: &DnnHandles) -> Result<Option<Made>, CudaError> {
        handles.context.api()?;
        // A plan may be wanted for a stream that is being captured.
        let _relaxed = Relaxed::new(&handles.context);
        // The library opens NVRTC by name and does not look beside it: opened before, it finds all of it there.
        let _ = cuda.compiler();
        let (chip, version, choice_text) = (cuda.chip(), handles.dnn.build(), choice.to_string());
        let device = format!("{} {} {} {:?}", chip.name, chip.arch(), chip.multiprocessors, chip.driver);
        let name = digest(["cudnn plan", &version, &graph.text(), &choice_text, &device]);
        let handle = locked(&handles.building);
        let kept = cuda.workshop().kept_plan(&name);
        if let Some(made) = kept.and_then(|text| Made::from_text(handles.dnn, &text, handle.0).ok()) {
            return Ok(Some(made));
        }
        let Some(made) = Made::choose(handles.dnn, graph, choice, &Target::Handle(handle.0))? else { return Ok(None) };
        if let Ok(text) = made.text() {
            cuda.workshop().keep_plan(&name, text);
        }
        Ok(Some(made))
    }

    /// Makes a plan for a chip that is only described, in the library's own words, and runs nothing: for tests without
    /// a GPU. Gives the bytes of its workspace, and its text.
    #[doc(hidden)]
    pub fn rehearse(graph: &DnnGraph, choice: usize, chip: &str) -> Result<Option<(u64, Vec<u8>)>, CudaError> {
        let dnn = Dnn::get()?;
        let chip = Descriptor::new(dnn, Kind::Chip)?.with(&CHIP_TEXT, chip.as_bytes())?.finalized()?;
        // Outlives what is made for it.
        let target = Target::Chip(chip);
        let made = Made::choose(dnn, graph, choice, &target)?;
        made.map(|made| Ok((made.workspace()?, made.text()?))).transpose()
    }

    /// Bytes of workspace one launch takes.
    pub fn workspace(&self) -> u64 {
        self.workspace
    }

    /// Queues all of the graph on the memory at these addresses, in the order of its tensors.
    ///
    /// # Safety
    /// The addresses are of device memory that holds what the tensors span until the work has ended, aligned as they
    /// say. The workspace holds as many bytes as `workspace` says and is the stream's own.
    pub unsafe fn launch(&self, at: &[u64], workspace: u64, stream: &Stream) -> Result<(), CudaError> {
        let inputs = at.len();
        if inputs != self.memories {
            return Err(CudaError::Fit(format!("{inputs} addresses were given, the plan takes {}", self.memories)));
        }
        let handles = &*self.handles;
        handles.context.api()?;
        // What the library does when a kernel runs for the first time may be nothing for a stream that is captured.
        let _relaxed = Relaxed::new(&handles.context);
        if stream.captured().is_some() {
            self.captured.store(true, Ordering::Relaxed);
        }
        let mut key = [0; MOST];
        key[..inputs].copy_from_slice(at);
        key[MOST - 1] = workspace;
        let mut state = locked(&self.state);
        let place = match state.packs.iter().position(|(known, _)| *known == key) {
            Some(place) => place,
            None => {
                let pack = self.pack(at, workspace)?;
                state.keep(key, pack)
            }
        };
        let handle = locked(&handles.launching);
        // SAFETY: the handle is alive, and ours alone while it is locked.
        let status = unsafe { (handles.dnn.set_stream)(handle.0, stream.handle()) };
        handles.dnn.checked(status, "cudnnSetStream")?;
        // SAFETY: the caller's word for the memory; the pack names it and numbers that this object holds.
        unsafe { state.made.plan.execute(handle.0, &state.packs[place].1) }
    }

    fn pack(&self, at: &[u64], workspace: u64) -> Result<Descriptor, CudaError> {
        let values = self.values.iter().map(|value| (&raw const *value) as u64);
        let pointers: Vec<u64> = at.iter().copied().chain(values).collect();
        let pack = Descriptor::new(self.handles.dnn, Kind::Pack)?.with(&PACK_IDS, &self.ids)?;
        pack.with(&PACK_POINTERS, &pointers)?.with(&PACK_WORKSPACE, &[workspace])?.finalized()
    }
}

impl State {
    /// Keeps a pack in place of the oldest; gives its place. A launch that was queued has what it needs of one that
    /// goes.
    fn keep(&mut self, key: [u64; MOST], pack: Descriptor) -> usize {
        if self.packs.len() < KEPT {
            self.packs.push((key, pack));
            return self.packs.len() - 1;
        }
        let place = self.next;
        self.next = (place + 1) % KEPT;
        self.packs[place] = (key, pack);
        place
    }
}

impl Drop for DnnPlan {
    fn drop(&mut self) {
        // What the plan has loaded goes with it, out of its own context.
        let _ = self.handles.context.api();
        if !*self.captured.get_mut() {
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: dropped here and nowhere else, and nobody uses it any more.
            unsafe { ManuallyDrop::drop(&mut state.made) };
        }
    }
}

impl std::fmt::Debug for DnnPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DnnPlan").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}
