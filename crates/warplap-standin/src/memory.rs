//! Device memory: the host's, counted so that it can run out.

use std::alloc::{Layout, alloc, dealloc};

use crate::state::{INVALID, MEMORY, NO_MEMORY, code, enter, outside_capture, state, wait};

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, 256).ok()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> i32 {
    code(enter("cuMemAlloc_v2").and_then(|()| outside_capture()).and_then(|()| {
        let mut state = state();
        let used: usize = state.allocated.values().sum();
        let layout = layout(bytes).filter(|_| bytes > 0).ok_or(INVALID)?;
        if bytes > MEMORY - used.min(MEMORY) {
            return Err(NO_MEMORY);
        }
        let at = unsafe { alloc(layout) } as usize;
        if at == 0 {
            return Err(NO_MEMORY);
        }
        state.allocated.insert(at, bytes);
        unsafe { to.write(at as u64) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(at: u64) -> i32 {
    code(enter("cuMemFree_v2").and_then(|()| outside_capture()).and_then(|()| {
        let bytes = state().allocated.remove(&(at as usize)).ok_or(INVALID)?;
        if let Some(layout) = layout(bytes) {
            unsafe { dealloc(at as *mut u8, layout) };
        }
        Ok(())
    }))
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _: usize) -> i32 {
    unsafe { copy("cuMemcpyDtoDAsync_v2", to as usize, from as usize, bytes) }
}
