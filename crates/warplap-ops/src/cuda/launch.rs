//! From plan to launches: compiled and loaded once, then one driver call a launch. No lock, no allocation and nothing
//! written on the way; tensor maps are kept by the addresses they were made for.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use warplap_core::rejection::Rejection;
use warplap_core::resources::Resources;
use warplap_cuda::{Cuda, Function, LaunchShape, Stream, TensorMap, TensorMapSpec};

use super::plan::{Argument, Grid, Plan};
use super::scratch::Scratch;

/// Sets of tensor maps kept for launches to come: a timed rotation has a few dozen, a program one.
const KEPT: usize = 64;

/// Sets of tensor maps made at the most; whoever comes later with addresses that are not known encodes its own each
/// time.
const MADE: usize = 8192;

/// Arguments of a kernel at the most, and tensor maps among them.
const ARGUMENTS: usize = 48;
const MAPS: usize = 4;

/// Addresses of scratch among them.
const ROOMS: usize = 4;

/// The tensor maps of one list of addresses.
struct Maps<const N: usize> {
    at: [u64; N],
    maps: [TensorMap; MAPS],
}

/// The list of arguments as the driver takes it, prepared: numbers point to `numbers` for good, maps and buffers are
/// filled in by each launch.
struct List {
    count: usize,
    // Addresses of `numbers`, or null.
    prepared: [*const c_void; ARGUMENTS],
    mapped: usize,
    maps: [u8; MAPS],
    buffers: Vec<(u8, u8)>,
    // Places of addresses of scratch, and bytes from its beginning.
    rooms: Vec<(u8, u64)>,
    // A number of 32 bits lies in the first half of its word: the hosts of these devices are little-endian.
    _numbers: Box<[u64]>,
}

// SAFETY: the pointers are to numbers that the list owns on the heap and nobody writes.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl List {
    fn new(arguments: &[Argument]) -> Self {
        let number = |argument: &Argument| match argument {
            Argument::Int(value) => u64::from(*value as u32),
            Argument::Long(value) => *value,
            _ => 0,
        };
        let numbers: Box<[u64]> = arguments.iter().map(number).collect();
        let (mut prepared, mut maps, mut seen) = ([null(); ARGUMENTS], [0; MAPS], 0);
        let (mut buffers, mut rooms) = (Vec::new(), Vec::new());
        for (place, argument) in arguments.iter().enumerate() {
            match argument {
                Argument::Map(..) => {
                    maps[seen] = place as u8;
                    seen += 1;
                }
                Argument::Pointer(buffer) => buffers.push((place as u8, *buffer as u8)),
                Argument::Scratch(_) => rooms.push((place as u8, 0)),
                Argument::Room(words) => rooms.push((place as u8, 4 * words)),
                Argument::Int(_) | Argument::Long(_) => prepared[place] = (&raw const numbers[place]).cast(),
            }
        }
        List { count: arguments.len(), prepared, mapped: seen, maps, buffers, rooms, _numbers: numbers }
    }
}

/// A plan, loaded: a kernel that takes the addresses of N buffers. What a launch reads lies side by side in it: after
/// the driver's own call little of it is in the cache.
pub(crate) struct Loaded<const N: usize> {
    function: Function,
    shape: LaunchShape,
    list: List,
    scratch: Option<Scratch>,
    workspace: u64,
    resources: Option<Resources>,
    maps: Vec<(usize, TensorMapSpec)>,
    // A place is found by hashing the addresses; whoever comes to a place that is taken replaces what is there. A
    // launch on another thread may still read what was replaced, so everything lives in `made` as long as this object.
    kept: [AtomicPtr<Maps<N>>; KEPT],
    made: Mutex<Vec<Arc<Maps<N>>>>,
}

impl<const N: usize> Loaded<N> {
    /// Compiles the plan's source (or takes it from the artifacts), loads it and decides the grid.
    pub(crate) fn new(plan: Plan, cuda: &Cuda) -> Result<Self, Rejection> {
        let over = |what: &str| Rejection::OverLimits { reason: format!("the {what} is too large for a launch") };
        let named = |a: &Argument| !matches!(a, Argument::Map(i, _) | Argument::Pointer(i) if *i >= N);
        let maps = |list: &[Argument]| list.iter().filter(|a| matches!(a, Argument::Map(..))).count();
        let rooms = |list: &[Argument]| {
            list.iter().filter(|a| matches!(a, Argument::Scratch(_) | Argument::Room(_))).count() > ROOMS
        };
        let list = &plan.arguments;
        if list.len() > ARGUMENTS || maps(list) > MAPS || rooms(list) || !list.iter().all(named) {
            return Err(over("list of arguments"));
        }
        let need = plan.scratch();
        let (scratch, workspace) = ((need.words > 0).then(|| Scratch::new(need)), 4 * need.words);
        let function = cuda.build(&plan.source)?;
        let shared = u32::try_from(plan.shared).map_err(|_| over("shared memory"))?;
        function.allow_shared(shared).map_err(|e| e.rejection())?;
        let (threads, overlap) = (plan.threads, plan.overlap);
        let mut shape = LaunchShape { grid: [1, 1, 1], threads, shared, overlap, ..LaunchShape::default() };
        let blocks = match plan.grid {
            Grid::Blocks(blocks) => blocks,
            Grid::Persistent { tiles, cluster: 1 } => tiles.min(u64::from(cuda.chip().multiprocessors)),
            Grid::Persistent { tiles, cluster } => {
                let most = function.most_clusters(&shape, cluster).map_err(|e| e.rejection())?;
                tiles.min(u64::from(most.max(1))) * u64::from(cluster)
            }
        };
        shape.grid[0] = u32::try_from(blocks).ok().filter(|b| *b < 1 << 31).ok_or_else(|| over("grid"))?;
        let resources = function.resources(&shape, cuda.chip().resident_threads());
        let spec = |argument: &Argument| match argument {
            Argument::Map(buffer, spec) => Some((*buffer, *spec)),
            _ => None,
        };
        let (maps, kept) =
            (plan.arguments.iter().filter_map(spec).collect(), [const { AtomicPtr::new(null_mut()) }; KEPT]);
        Ok(Loaded {
            function,
            shape,
            list: List::new(&plan.arguments),
            scratch,
            workspace,
            resources,
            maps,
            kept,
            made: Mutex::default(),
        })
    }

    /// Bytes of scratch for each stream.
    pub(crate) fn workspace(&self) -> u64 {
        self.workspace
    }

    /// What a launch takes of a multiprocessor.
    pub(crate) fn resources(&self) -> Option<Resources> {
        self.resources
    }

    /// The address of its scratch on a stream; zero where it needs none.
    #[inline]
    pub(crate) fn room(&self, queue: &Stream) -> Result<u64, Rejection> {
        self.scratch.as_ref().map_or(Ok(0), |scratch| scratch.address(queue))
    }

    /// Queues one launch on buffers at these addresses.
    ///
    /// # Safety
    /// The plan lists the entry's parameters in order, and the addresses are of device memory that holds what the
    /// kernel reads and writes until it has ended.
    #[inline]
    pub(crate) unsafe fn launch(&self, at: &[u64; N], queue: &Stream) -> Result<(), Rejection> {
        // SAFETY: the caller's word; the scratch is its own.
        unsafe { self.launch_in(at, self.room(queue)?, queue) }
    }

    /// The same with the scratch at an address, its own or that of the chain it belongs to.
    ///
    /// # Safety
    /// As for `launch`, and the scratch holds what the kernel's rooms reach into.
    #[inline]
    pub(crate) unsafe fn launch_in(&self, at: &[u64; N], room: u64, queue: &Stream) -> Result<(), Rejection> {
        if self.maps.is_empty() {
            // SAFETY: the caller's word; there is no map among the arguments.
            return unsafe { self.go(at, &[], room, queue) };
        }
        let place = &self.kept[place(at)];
        // SAFETY: null, or maps of `made`, which nothing leaves before this object ends.
        match unsafe { place.load(Ordering::Acquire).as_ref() } {
            // SAFETY: the caller's word; these maps were encoded for these addresses.
            Some(known) if known.at == *at => unsafe { self.go(at, &known.maps, room, queue) },
            // SAFETY: the caller's word.
            _ => unsafe { self.launch_anew(at, place, room, queue) },
        }
    }

    /// As `launch`, for addresses whose maps are not kept.
    ///
    /// # Safety
    /// As for `launch`.
    #[cold]
    unsafe fn launch_anew(
        &self,
        at: &[u64; N],
        place: &AtomicPtr<Maps<N>>,
        room: u64,
        queue: &Stream,
    ) -> Result<(), Rejection> {
        let fresh = Arc::new(self.encode(at)?);
        // SAFETY: the caller's word; these maps were encoded for these addresses.
        let launched = unsafe { self.go(at, &fresh.maps, room, queue) };
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() < MADE {
            place.store(Arc::as_ptr(&fresh).cast_mut(), Ordering::Release);
            made.push(fresh);
        }
        launched
    }

    fn encode(&self, at: &[u64; N]) -> Result<Maps<N>, Rejection> {
        let mut maps = [TensorMap::default(); MAPS];
        for (to, (buffer, spec)) in maps.iter_mut().zip(&self.maps) {
            *to = TensorMap::encode(spec, at[*buffer]).map_err(|e| e.rejection())?;
        }
        Ok(Maps { at: *at, maps })
    }

    /// # Safety
    /// As for `launch`, and `maps` holds one map for each argument that is one.
    #[inline]
    unsafe fn go(&self, at: &[u64; N], maps: &[TensorMap], room: u64, queue: &Stream) -> Result<(), Rejection> {
        let (list, mut rooms) = (&self.list, [0; ROOMS]);
        let mut pointers = list.prepared;
        for (map, place) in maps.iter().zip(&list.maps[..list.mapped.min(MAPS)]) {
            pointers[*place as usize % ARGUMENTS] = (&raw const *map).cast();
        }
        for (place, buffer) in &list.buffers {
            pointers[*place as usize % ARGUMENTS] = (&raw const at[*buffer as usize]).cast();
        }
        for ((place, bytes), to) in list.rooms.iter().zip(&mut rooms) {
            *to = room + bytes;
            pointers[*place as usize % ARGUMENTS] = (&raw const *to).cast();
        }
        // SAFETY: the caller's word; every pointer is to a value that lives until the call returns.
        let launched = unsafe { self.function.launch(&self.shape, &pointers[..list.count.min(ARGUMENTS)], queue) };
        launched.map_err(|e| e.rejection())
    }
}

/// The place of the maps of these addresses.
#[inline]
fn place<const N: usize>(at: &[u64; N]) -> usize {
    // Allocations lie on multiples of 256 bytes or more: the low bits say little.
    let mixed = at.iter().fold(0u64, |h, a| (h.rotate_left(17) ^ (a >> 4)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (mixed >> 58) as usize % KEPT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::scratch::Need;

    #[test]
    fn numbers_are_prepared_and_the_places_of_the_rest_are_known() {
        let list = List::new(&[Argument::Pointer(2), Argument::Int(-7), Argument::Pointer(0), Argument::Long(1 << 40)]);
        // SAFETY: both point to words that `list` holds.
        let (int, long) = unsafe { (*list.prepared[1].cast::<i32>(), *list.prepared[3].cast::<u64>()) };
        assert_eq!((int, long, list.count, list.mapped), (-7, 1 << 40, 4, 0));
        assert_eq!((list.buffers.as_slice(), list.rooms.len()), ([(0, 2), (2, 0)].as_slice(), 0));
        let list = List::new(&[Argument::Room(3), Argument::Scratch(Need::default())]);
        assert_eq!(list.rooms, [(0, 12), (1, 0)]);
    }

    #[test]
    fn the_addresses_of_a_rotation_are_spread_over_many_places() {
        let matrix = |i: u64| (1 << 40) + (i << 25);
        let sets = (0..32).map(|i| [matrix(3 * i), matrix(3 * i + 1), matrix(3 * i + 2)]);
        let places: std::collections::HashSet<usize> = sets.map(|at| place(&at)).collect();
        assert!(places.len() >= 20 && places.iter().all(|p| *p < KEPT), "{places:?}");
    }
}
