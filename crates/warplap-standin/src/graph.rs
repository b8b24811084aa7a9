//! Launches, streams, events and captured graphs. A stream runs what it is given at once, unless it captures it.

use std::sync::Arc;
use std::time::Instant;

use crate::kernel::{Act, Lasts, Run};
use crate::state::{Capture, INVALID, MODE, Object, code, enter, outside_capture, state, wait};

macro_rules! plain {
    ($($name:ident($($arg:ident: $ty:ty),*) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
                #[allow(unused_unsafe)]
                let body = || -> Result<(), i32> { unsafe { $body } };
                code(enter(stringify!($name)).and_then(|()| body()))
            }
        )*
    };
}
pub(crate) use plain;

/// The cluster and whether the launch may begin early, as the 72 bytes of each attribute say.
unsafe fn attributes(config: *const usize) -> Result<([u32; 3], bool), i32> {
    let (mut cluster, mut early) = ([0; 3], false);
    unsafe {
        let (grid, list) = (config.cast::<[u32; 3]>().read(), config.add(5).read() as *const [u32; 18]);
        for i in 0..config.add(6).cast::<u32>().read() {
            let [id, _, value @ ..] = list.add(i as usize).read();
            match id {
                4 => cluster = [value[0], value[1], value[2]],
                6 => early = value[0] != 0,
                _ => return Err(INVALID),
            }
        }
        // A grid is whole clusters.
        let whole = cluster == [0; 3] || grid.iter().zip(cluster).all(|(g, c)| c > 0 && g % c == 0);
        if whole { Ok((cluster, early)) } else { Err(INVALID) }
    }
}

/// The attributes of the last launch, for tests: three sizes of a cluster and whether it might begin early.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_attributes(to: *mut u32) {
    let ([x, y, z], early) = state().attributes;
    unsafe { to.cast::<[u32; 4]>().write([x, y, z, u32::from(early)]) };
}

plain! {
    cuStreamCreate(to: *mut usize, _flags: u32) { to.write(state().handle()); Ok(()) }
    cuStreamDestroy_v2(_stream: usize) { Ok(()) }
    cuStreamSynchronize(stream: usize) {
        if let Some(capture) = state().captured.get_mut(&stream) {
            capture.spoiled = true;
            return Err(900);
        }
        wait()
    }
    cuStreamIsCapturing(stream: usize, to: *mut i32) {
        to.write(i32::from(state().captured.contains_key(&stream)));
        Ok(())
    }
    cuStreamGetCaptureInfo_v2(stream: usize, to: *mut i32, id: *mut u64, graph: *mut usize, _1: usize, _2: usize) {
        let state = state();
        let capture = state.captured.get(&stream);
        to.write(i32::from(capture.is_some()));
        if let Some(capture) = capture {
            id.write(capture.graph as u64);
            graph.write(capture.graph);
        }
        Ok(())
    }
    cuUserObjectCreate(to: *mut usize, value: usize, destroy: extern "C" fn(usize), count: u32, flags: u32) {
        if (count, flags) != (1, 1) {
            return Err(INVALID);
        }
        let mut state = state();
        let object = state.handle();
        state.objects.insert(object, Object { value, destroy });
        to.write(object);
        Ok(())
    }
    cuGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32) {
        let mut state = state();
        let known = state.graphs.contains_key(&graph) || state.captured.values().any(|c| c.graph == graph);
        if !known || (count, flags) != (1, 1) {
            return Err(INVALID);
        }
        let object = state.objects.remove(&object).ok_or(INVALID)?;
        state.owned.entry(graph).or_default().push(Arc::new(object));
        Ok(())
    }
    cuThreadExchangeStreamCaptureMode(mode: *mut i32) { mode.write(MODE.replace(mode.read())); Ok(()) }
    cuStreamBeginCapture_v2(stream: usize, mode: i32) {
        let (mut state, thread) = (state(), std::thread::current().id());
        let graph = state.handle();
        state.captured.insert(stream, Capture { runs: Vec::new(), mode, thread, spoiled: false, graph });
        Ok(())
    }
    cuStreamEndCapture(stream: usize, to: *mut usize) {
        let mut state = state();
        let capture = state.captured.remove(&stream).ok_or(INVALID)?;
        if capture.spoiled {
            state.owned.remove(&capture.graph);
            // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED.
            return Err(901);
        }
        state.graphs.insert(capture.graph, capture.runs);
        to.write(capture.graph);
        Ok(())
    }
    cuGraphInstantiateWithFlags(to: *mut usize, graph: usize, _flags: u64) {
        let mut state = state();
        let runs = state.graphs.get(&graph).cloned().ok_or(INVALID)?;
        let instance = state.handle();
        state.graphs.insert(instance, runs);
        let owned = state.owned.get(&graph).cloned().unwrap_or_default();
        state.owned.insert(instance, owned);
        to.write(instance);
        Ok(())
    }
    cuGraphLaunch(graph: usize, _stream: usize) {
        let runs = state().graphs.get(&graph).cloned().ok_or(INVALID)?;
        runs.into_iter().try_for_each(Run::run)
    }
    cuGraphExecDestroy(graph: usize) { ends(graph) }
    cuGraphDestroy(graph: usize) { ends(graph) }
    cuEventCreate(to: *mut usize, _flags: u32) { to.write(state().handle()); Ok(()) }
    cuEventDestroy_v2(event: usize) { state().events.remove(&event); Ok(()) }
    cuEventRecord(event: usize, _stream: usize) {
        let mut state = state();
        let now = Instant::now() + state.passed();
        state.events.insert(event, now);
        Ok(())
    }
    cuEventSynchronize(_event: usize) { wait() }
    cuEventElapsedTime(to: *mut f32, start: usize, end: usize) {
        let state = state();
        let (Some(start), Some(end)) = (state.events.get(&start), state.events.get(&end)) else { return Err(INVALID) };
        to.write((end.saturating_duration_since(*start).as_secs_f64() * 1e3).max(1e-3) as f32);
        Ok(())
    }
    cuModuleLoadData(to: *mut usize, image: *const std::ffi::c_char) {
        outside_capture()?;
        let text = std::ffi::CStr::from_ptr(image).to_string_lossy().into_owned();
        if !text.starts_with(crate::nvrtc::HEAD) {
            // 200 is CUDA_ERROR_INVALID_IMAGE.
            return Err(200);
        }
        let mut state = state();
        let module = state.modules.len() + 1;
        for (name, bytes) in text.lines().filter_map(declared) {
            // Never given back: a test's modules are few.
            let room = vec![0u64; bytes.div_ceil(8)].leak().as_ptr() as usize;
            state.globals.insert((module, name.to_string()), (room, bytes));
        }
        state.modules.push(text);
        to.write(module);
        Ok(())
    }
    cuModuleGetGlobal_v2(to: *mut u64, bytes: *mut usize, module: usize, name: *const std::ffi::c_char) {
        let name = std::ffi::CStr::from_ptr(name).to_string_lossy().into_owned();
        // 500 is CUDA_ERROR_NOT_FOUND.
        let (at, room) = *state().globals.get(&(module, name)).ok_or(500)?;
        to.write(at as u64);
        bytes.write(room);
        Ok(())
    }
    cuModuleUnload(_module: usize) { Ok(()) }
    cuModuleGetFunction(to: *mut usize, module: usize, name: *const std::ffi::c_char) {
        let entry = std::ffi::CStr::from_ptr(name).to_string_lossy().into_owned();
        let mut state = state();
        let text = state.modules.get(module.wrapping_sub(1)).ok_or(INVALID)?;
        // 500 is CUDA_ERROR_NOT_FOUND.
        let act = Act::of(text, &entry).filter(|_| text.contains(&entry)).ok_or(500)?;
        let lasts = Lasts::of(text);
        state.functions.push((module, act, lasts));
        to.write(state.functions.len());
        Ok(())
    }
    cuFuncGetAttribute(to: *mut i32, _attribute: i32, _function: usize) { to.write(32); Ok(()) }
    cuFuncSetAttribute(_function: usize, _attribute: i32, _value: i32) { Ok(()) }
    cuOccupancyMaxActiveBlocksPerMultiprocessor(to: *mut i32, _function: usize, threads: i32, _shared: usize) {
        to.write(2048 / threads.max(1) / 2);
        Ok(())
    }
    cuOccupancyMaxActiveClusters(to: *mut i32, _function: usize, _config: *const u8) { to.write(66); Ok(()) }
    cuTensorMapEncodeTiled() { Ok(()) }
    cuLaunchKernelEx(config: *const usize, function: usize, arguments: *const *const usize, _extra: usize) {
        let (module, act, lasts) = *state().functions.get(function.wrapping_sub(1)).ok_or(INVALID)?;
        let blocks = config.cast::<u32>().read() as usize;
        let attributes = attributes(config)?;
        state().attributes = attributes;
        let run = Run::new(act, arguments, module, blocks, Lasts { early: attributes.1, ..lasts })?;
        // The stream of `CUlaunchConfig` lies behind seven numbers of four bytes and a gap, then come its attributes.
        let stream = config.add(4).read();
        queue(stream, run)
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) {
        queue(stream, Run::copy(to as usize, from as usize, bytes))
    }
}

/// The end of a graph or of an instance, and of what it alone has kept.
fn ends(graph: usize) -> Result<(), i32> {
    let mut state = state();
    state.graphs.remove(&graph);
    state.owned.remove(&graph);
    Ok(())
}

/// Runs it, or keeps it for the graph where its stream is captured.
fn queue(stream: usize, run: Run) -> Result<(), i32> {
    let mut state = state();
    match state.captured.get_mut(&stream) {
        Some(capture) => {
            capture.runs.push(run);
            Ok(())
        }
        None => {
            drop(state);
            run.run()
        }
    }
}

/// A global as a line `//# NAME BYTES` declares it.
fn declared(line: &str) -> Option<(&str, usize)> {
    let (name, bytes) = line.trim().strip_prefix("//#")?.trim().split_once(' ')?;
    Some((name, bytes.trim().parse().ok()?))
}
