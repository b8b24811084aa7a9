//! Workspaces on the stand-in driver: whose they are while a stream is used, captured, and when the graph is gone.

use std::ffi::CStr;
use std::sync::OnceLock;

use libloading::Library;
use warplap_core::dtype::DType;
use warplap_cuda::{Cuda, Workspaces};

#[allow(dead_code, unreachable_pub, reason = "the tests of the sandbox use the rest")]
mod standin;
use standin::opened;

fn call<T: Copy>(name: &CStr) -> T {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // SAFETY: the stand-in library, which stays open; the signatures are those of its functions.
    unsafe {
        let library = LIBRARY.get_or_init(|| Library::new(standin::library()).unwrap());
        *library.get(name.to_bytes_with_nul()).unwrap()
    }
}

fn room(workspaces: &Workspaces, cuda: &Cuda, len: usize) -> u64 {
    workspaces.address(cuda.stream(), len, || cuda.stream().alloc(DType::F32, len)).unwrap()
}

/// What a body does while somebody captures the device's own stream, and the graph.
fn captured<R>(cuda: &Cuda, body: impl FnOnce() -> R) -> (R, usize) {
    let begin: unsafe extern "C" fn(usize, i32) -> i32 = call(c"cuStreamBeginCapture_v2");
    let end: unsafe extern "C" fn(usize, *mut usize) -> i32 = call(c"cuStreamEndCapture");
    let (stream, mut graph) = (cuda.stream().handle(), 0);
    // SAFETY: a capture of the device's own stream, ended below.
    assert_eq!(unsafe { begin(stream, 0) }, 0);
    let done = body();
    // SAFETY: the pointer is to a local.
    assert_eq!(unsafe { end(stream, &mut graph) }, 0, "the capture was spoiled");
    (done, graph)
}

fn instance(graph: usize) -> usize {
    let instantiate: unsafe extern "C" fn(*mut usize, usize, u64) -> i32 = call(c"cuGraphInstantiateWithFlags");
    let mut made = 0;
    // SAFETY: the pointer is to a local.
    assert_eq!(unsafe { instantiate(&mut made, graph, 0) }, 0);
    made
}

fn destroy(name: &CStr, graph: usize) {
    let destroy: unsafe extern "C" fn(usize) -> i32 = call(name);
    // SAFETY: takes a handle.
    assert_eq!(unsafe { destroy(graph) }, 0);
}

fn allocated() -> [u64; 2] {
    let count: unsafe extern "C" fn(*const std::ffi::c_char) -> u64 = call(c"standin_calls");
    // SAFETY: the names end in zero.
    [c"cuMemAlloc_v2", c"cuMemFree_v2"].map(|name| unsafe { count(name.as_ptr()) })
}

/// One test: the stand-in's counters and streams are one for the process.
#[test]
fn every_capture_has_a_room_of_its_own_until_its_graph_is_gone() {
    let (cuda, workspaces) = (opened(), Workspaces::default());
    let own = room(&workspaces, &cuda, 100);
    assert_eq!(room(&workspaces, &cuda, 50), own, "launches of a stream follow each other");

    let ((first, again), one) = captured(&cuda, || (room(&workspaces, &cuda, 100), room(&workspaces, &cuda, 100)));
    let (second, two) = captured(&cuda, || room(&workspaces, &cuda, 100));
    assert_eq!(first, again, "so do those of a capture on one stream");
    assert!(first != own && second != own && first != second, "graphs may be replayed side by side");
    assert_eq!(room(&workspaces, &cuda, 100), own);

    let replayed = instance(one);
    destroy(c"cuGraphDestroy", one);
    let (third, _three) = captured(&cuda, || room(&workspaces, &cuda, 100));
    assert!(third != first, "its instance may still be replayed");
    destroy(c"cuGraphExecDestroy", replayed);
    let (large, _four) = captured(&cuda, || room(&workspaces, &cuda, 101));
    assert!(large != first, "the room of what is gone is too small");
    let (fifth, five) = captured(&cuda, || room(&workspaces, &cuda, 100));
    assert_eq!(fifth, first, "its room serves the next capture");

    destroy(c"cuGraphDestroy", two);
    let before = allocated();
    drop(workspaces);
    let [made, freed] = allocated();
    let freed = [made - before[0], freed - before[1]];
    assert_eq!(freed, [0, 2], "the stream's and that of a graph that is gone; those of others outlive all");
    destroy(c"cuGraphDestroy", five);
}
