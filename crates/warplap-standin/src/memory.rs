//! Device memory: the host's, counted so that it can run out.

use std::alloc::{Layout, alloc, dealloc};

use crate::graph::plain;
use crate::state::{INVALID, MEMORY, NO_MEMORY, State, code, enter, outside_capture, state, wait};

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, 256).ok()
}

/// So many bytes beside what is in use.
fn take(state: &mut State, bytes: usize) -> Result<u64, i32> {
    let used = state.kept + state.allocated.values().sum::<usize>();
    let layout = layout(bytes).filter(|_| bytes > 0).ok_or(INVALID)?;
    if bytes > MEMORY - used.min(MEMORY) {
        return Err(NO_MEMORY);
    }
    let at = unsafe { alloc(layout) } as usize;
    if at == 0 {
        return Err(NO_MEMORY);
    }
    state.allocated.insert(at, bytes);
    Ok(at as u64)
}

/// Gives them back; how many there were.
fn give(state: &mut State, at: u64) -> Result<usize, i32> {
    let bytes = state.allocated.remove(&(at as usize)).ok_or(INVALID)?;
    if let Some(layout) = layout(bytes) {
        unsafe { dealloc(at as *mut u8, layout) };
    }
    Ok(bytes)
}

/// What is ordered by a stream becomes part of its graph where it is captured, which nobody here wants.
fn not_captured(stream: usize) -> Result<(), i32> {
    match state().captured.get_mut(&stream) {
        Some(capture) => {
            capture.spoiled = true;
            Err(900)
        }
        None => Ok(()),
    }
}

plain! {
    cuMemAlloc_v2(to: *mut u64, bytes: usize) {
        outside_capture()?;
        to.write(take(&mut state(), bytes)?);
        Ok(())
    }
    cuMemFree_v2(at: u64) { outside_capture()?; give(&mut state(), at).map(drop) }
    cuMemPoolCreate(to: *mut usize, _props: *const u8) { to.write(state().handle()); Ok(()) }
    cuMemPoolDestroy(_pool: usize) { state().kept = 0; Ok(()) }
    cuMemPoolSetAttribute(_pool: usize, attribute: i32, _value: *const u64) {
        if attribute == 4 { Ok(()) } else { Err(INVALID) }
    }
    cuMemPoolTrimTo(_pool: usize, keep: usize) {
        let mut state = state();
        state.kept = state.kept.min(keep);
        Ok(())
    }
    // Everything given back is kept, and all that is kept fits only what is as large or smaller.
    cuMemAllocFromPoolAsync(to: *mut u64, bytes: usize, _pool: usize, stream: usize) {
        not_captured(stream)?;
        let mut state = state();
        let kept = state.kept;
        state.kept = if bytes <= kept { kept - bytes } else { kept };
        let taken = take(&mut state, bytes);
        if taken.is_err() {
            state.kept = kept;
        }
        to.write(taken?);
        Ok(())
    }
    cuMemFreeAsync(at: u64, stream: usize) {
        not_captured(stream)?;
        let mut state = state();
        let bytes = give(&mut state, at)?;
        state.kept += bytes;
        Ok(())
    }
}

/// How often a call was made so far, for tests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_calls(call: *const std::ffi::c_char) -> u64 {
    let call = unsafe { std::ffi::CStr::from_ptr(call) }.to_string_lossy().into_owned();
    state().calls.get(call.as_str()).copied().unwrap_or(0)
}

/// Copies what both sides hold.
unsafe fn copy(call: &'static str, to: usize, from: usize, bytes: usize) -> i32 {
    code(enter(call).and_then(|()| {
        wait()?;
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, _: usize) -> i32 {
    unsafe { copy("cuMemcpyHtoDAsync_v2", to as usize, from as usize, bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, _: usize) -> i32 {
    unsafe { copy("cuMemcpyDtoHAsync_v2", to as usize, from as usize, bytes) }
}
