//! Launches with attributes on the stand-in driver: clusters and early starts reach the driver as asked for.

use libloading::Library;
use warplap_cuda::{Class, LaunchShape, OwnSource};

#[allow(dead_code, unreachable_pub, reason = "the tests of the sandbox use the rest")]
mod standin;
use standin::opened;

fn attributes(library: &Library) -> [u32; 4] {
    let mut read = [0; 4];
    // SAFETY: the stand-in's own function, which writes four numbers.
    unsafe {
        let ask: unsafe extern "C" fn(*mut u32) = *library.get(b"standin_attributes\0").unwrap();
        ask(read.as_mut_ptr());
    }
    read
}

#[test]
fn clusters_and_early_starts_reach_the_driver_as_asked_for_and_neither_comes_by_itself() {
    let cuda = opened();
    // SAFETY: the stand-in library, which is loaded already.
    let library = unsafe { Library::new(standin::library()) }.unwrap();
    let text = "//@ nothing\nextern \"C\" __global__ void idle() {}".to_string();
    let source = OwnSource { entry: "idle".into(), text, headers: Vec::new(), options: Vec::new() };
    let function = cuda.build_own(&source).unwrap();
    let plain = LaunchShape { grid: [8, 4, 1], threads: 32, ..LaunchShape::default() };
    for (shape, seen) in [
        (plain, [0, 0, 0, 0]),
        (LaunchShape { overlap: true, ..plain }, [0, 0, 0, 1]),
        (LaunchShape { cluster: [4, 2, 1], ..plain }, [4, 2, 1, 0]),
        (LaunchShape { cluster: [2, 1, 1], overlap: true, ..plain }, [2, 1, 1, 1]),
    ] {
        // SAFETY: the entry takes nothing.
        unsafe { function.launch(&shape, &[], cuda.stream()) }.unwrap();
        assert_eq!(attributes(&library), seen, "{shape:?}");
    }
    let uneven = LaunchShape { cluster: [3, 1, 1], ..plain };
    // SAFETY: as above.
    let error = unsafe { function.launch(&uneven, &[], cuda.stream()) }.unwrap_err();
    assert!(error.class() == Class::Clean && cuda.broken().is_none(), "{error}");
}
