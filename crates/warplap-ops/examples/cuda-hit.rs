//! What a launch from Rust costs above the driver's own call, on the same kernel with the same arguments, in turns.
//!
//! Needs an NVIDIA GPU and NVRTC. The bare call is `cuLaunchKernelEx` with everything prepared; a prepared handle adds
//! the checks of the buffers, the tensor maps and the context; the tuner adds the lookup of the problem.
#![allow(clippy::print_stdout)]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::engine::Tuner;
use warplap_core::settings::{Mode, Settings};
use warplap_core::store::Store;
use warplap_cuda::{AMPERE, Cuda, ELEMENT, EPILOGUE, HOPPER, Layers, PAIR, Source, TensorMap, TensorMapSpec, ViewMut};
use warplap_ops::gemm::{Gemm, GemmProblem, cuda};

type Failed = Box<dyn std::error::Error>;

/// Launches of a window: few enough that the queue never fills.
const LAUNCHES: usize = 200;
const WINDOWS: usize = 400;

/// `CUlaunchConfig` and one `CUlaunchAttribute` of cuda.h.
#[repr(C)]
struct Attribute {
    id: u32,
    pad: u32,
    value: [u32; 16],
}
#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: usize,
    attributes: *const Attribute,
    count: u32,
}
type LaunchEx = unsafe extern "C" fn(*const Config, usize, *mut *mut c_void, *mut *mut c_void) -> i32;

fn main() -> Result<(), Failed> {
    let device = Arc::new(Cuda::open(0)?);
    let p = GemmProblem::new(64, 64, 64, DType::F16);
    let zeros = Array::filled(DType::F16, 64 * 64, 1.0);
    let (a, b, c) = (device.upload(&zeros)?, device.upload(&zeros)?, device.upload(&zeros)?);

    // The kernel as its own variant builds it.
    let catalog = cuda::catalog();
    let coop = catalog.find("wgmma_coop").ok_or("no wgmma_coop in the list")?.clone();
    println!("wgmma_coop[{}]", coop.space(&p, &device).default_config().ok_or("an empty space")?);
    let settings = Settings { mode: Mode::Off, ..Settings::default() };
    let tuner = Tuner::new(device.clone(), Catalog::<Gemm, Cuda>::new(coop), Store::memory(), settings);
    let prepared = tuner.prepare(&p)?;

    // The same by hand.
    let axes = [("BM", 128), ("BN", 128), ("BK", 64), ("STAGES", 6), ("CONS", 2), ("SLOTS", 2)];
    let mut defines = vec![("DTYPE", 0), ("A_COL", 0), ("B_COL", 0), ("BATCH", 0)];
    defines.extend(axes);
    defines.extend([("CM", 1), ("CN", 1), ("GROUP", 8), ("LAG", 1), ("SHARED", 6 * 32768 + 33792)]);
    let text = include_str!("../src/gemm/cuda/wgmma/wgmma_coop.cu");
    let source = Source { entry: "wgmma_coop", text, headers: &[HOPPER, AMPERE, ELEMENT, EPILOGUE, PAIR], defines };
    let function = device.build(&source).map_err(|e| e.to_string())?;
    let shared = 6 * 32768 + 33792;
    function.allow_shared(shared)?;
    let spec = |lines| {
        let (inner, outer, pitch, layers, block) = (64, 64, 64, Layers::Behind(1), [64, lines]);
        let (dtype, swizzle, promote, tf32) = (DType::F16, 128, true, false);
        TensorMapSpec { dtype, inner, outer, pitch, layers, block, swizzle, promote, tf32 }
    };
    let whole = 0..64 * 64;
    let at = [device.view(&a, whole.clone()).address(), device.view(&b, whole.clone()).address()];
    let to = device.view(&c, whole.clone()).address();
    let maps = [
        TensorMap::encode(&spec(128), at[0])?,
        TensorMap::encode(&spec(64), at[1])?,
        TensorMap::encode(&spec(64), to)?,
    ];
    let sizes = [64i32, 64, 64, 1];
    let mut arguments: Vec<*mut c_void> = maps.iter().map(|m| (&raw const *m).cast_mut().cast()).collect();
    arguments.extend(sizes.iter().map(|s| (&raw const *s).cast_mut().cast::<c_void>()));
    let mut value = [0; 16];
    value[0] = 1;
    let overlap = Attribute { id: 6, pad: 0, value };
    let config = Config {
        grid: [1, 1, 1],
        block: [384, 1, 1],
        shared,
        stream: device.stream().handle(),
        attributes: &overlap,
        count: 1,
    };
    // SAFETY: the driver is loaded already; the signature is cuda.h's.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }?;
    // SAFETY: as above.
    let launch: LaunchEx = unsafe { *library.get(b"cuLaunchKernelEx\0")? };

    let mut bare = || {
        // SAFETY: the arguments are the entry's parameters in order, the maps are of live buffers of the right size.
        let code = unsafe { launch(&config, function.handle(), arguments.as_mut_ptr(), std::ptr::null_mut()) };
        assert_eq!(code, 0);
    };
    let views = || {
        let (a, b) = (device.view(&a, whole.clone()), device.view(&b, whole.clone()));
        // SAFETY: the buffer lives to the end of this function and nothing else looks at it.
        let c = unsafe { ViewMut::from_raw(to, DType::F16, 64 * 64) };
        [Arg::Read(a), Arg::Read(b), Arg::Write(c), Arg::Absent, Arg::Absent, Arg::Absent]
    };
    let mut by_handle = || prepared.launch(&mut views(), device.stream()).expect("a right launch");
    let mut by_tuner = || tuner.launch(&p, &mut views(), device.stream()).expect("a right launch");
    let mut windows = [const { Vec::new() }; 3];
    let mut window = |kind: usize, call: &mut dyn FnMut()| -> Result<(), Failed> {
        device.stream().synchronize()?;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            call();
        }
        windows[kind].push(start.elapsed().as_nanos() as f64 / LAUNCHES as f64);
        Ok(())
    };
    for _ in 0..WINDOWS {
        window(0, &mut bare)?;
        window(1, &mut by_handle)?;
        window(2, &mut by_tuner)?;
    }
    device.stream().synchronize()?;
    // Differences within a round: what drifts between rounds is the same for all.
    let names = ["bare cuLaunchKernelEx", "prepared handle", "tuner: problem to launch"];
    let middle = |mut list: Vec<f64>| {
        list.sort_by(f64::total_cmp);
        (list[list.len() / 4], list[list.len() / 2], list[list.len() * 3 / 4])
    };
    for (name, list) in names.iter().zip(&windows) {
        let above = middle(list.iter().zip(&windows[0]).map(|(x, bare)| x - bare).collect());
        let (low, median, high) = middle(list.clone());
        println!(
            "HIT {name:<26} {median:.0} ns ({low:.0} to {high:.0}); above bare {:+.0} ns ({:+.0} to {:+.0})",
            above.1, above.0, above.2
        );
    }
    // SAFETY: cuda.h's signature.
    let current: unsafe extern "C" fn(*mut usize) -> i32 = unsafe { *library.get(b"cuCtxGetCurrent\0")? };
    let (mut context, start) = (0usize, Instant::now());
    for _ in 0..1_000_000 {
        // SAFETY: the pointer is to a local.
        unsafe { current(std::hint::black_box(&mut context)) };
    }
    println!("HIT cuCtxGetCurrent alone: {:.1} ns", start.elapsed().as_nanos() as f64 / 1e6);
    Ok(())
}
