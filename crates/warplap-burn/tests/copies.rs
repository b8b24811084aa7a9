//! No copies: a call of a known problem takes memory for its outputs and for nothing else as large. Counted by the
//! allocator, and by the package's own count of tensors made contiguous. About 5 s.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::{Device, Tensor};
use common::{drawn, mask, without_races};
use warplap_burn::{
    Activation, AttentionOptions, BsrTensor, NormOptions, attention, copies, linear, matmul, norm_residual,
};

/// Bytes above which memory counts: every tensor here is larger, what a call keeps beside is smaller.
const LARGE: usize = 64 << 10;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static ALONE: Mutex<()> = Mutex::new(());

struct Counting;

// SAFETY: everything goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE {
            TAKEN.fetch_add(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE {
            TAKEN.fetch_add(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's word.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size >= LARGE {
            TAKEN.fetch_add(size, Ordering::Relaxed);
        }
        // SAFETY: the caller's word.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's word.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of large memory that a call takes once its kernels have what they keep, and the copies it makes.
fn taken<R>(call: impl Fn() -> R) -> (usize, u64) {
    without_races();
    for _ in 0..3 {
        drop(call());
    }
    // The least of several calls: a thread that takes part for the first time makes room for what it packs.
    let once = || {
        let before = (TAKEN.load(Ordering::Relaxed), copies());
        let outcome = call();
        let after = (TAKEN.load(Ordering::Relaxed), copies());
        drop(outcome);
        (after.0 - before.0, after.1 - before.1)
    };
    (0..10).map(|_| once()).min().unwrap_or_default()
}

#[test]
fn a_known_call_takes_memory_for_its_outputs_alone() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let device = Device::flex();
    let (a, b) = (drawn([256, 384], 1, &device), drawn([384, 320], 2, &device));
    let product = || matmul(a.clone(), b.clone());
    assert_eq!(taken(product), (4 * 256 * 320, 0), "a product");

    // Both factors transposed, and one matrix for a batch.
    let (at, bt) = (drawn([384, 256], 1, &device), drawn([320, 384], 2, &device));
    let product = || matmul(at.clone().transpose(), bt.clone().transpose());
    let (bytes, copied) = taken(product);
    // The kernel that answers here packs one factor, whichever way it lies, as part of its work.
    assert!(copied == 0 && bytes <= 4 * (256 * 320 + 384 * 320), "a product of transposes: {bytes}, {copied} copies");
    let (x, bias) = (drawn([4, 64, 384], 3, &device), drawn([320], 4, &device));
    let layer = || linear(x.clone(), b.clone(), Some(bias.clone()), Activation::Gelu);
    assert_eq!(taken(layer), (4 * 256 * 320, 0), "a layer");

    let bsr = BsrTensor::from_dense(drawn([384, 384], 5, &device), mask([12, 12], 8, 6, &device), 32);
    let rows = drawn([256, 384], 7, &device);
    assert_eq!(taken(|| bsr.linear(rows.clone(), None)), (4 * 256 * 384, 0), "a block-sparse layer");
    // The kernel that answers here turns the stored blocks over as part of its work.
    let (bytes, copied) = taken(|| bsr.transpose().linear(rows.clone(), None));
    assert!(copied == 0 && bytes <= 4 * (256 * 384 + bsr.values().shape().num_elements()), "its transpose: {bytes}");

    let (q, k, v) =
        (drawn([2, 4, 64, 64], 8, &device), drawn([2, 4, 64, 64], 9, &device), drawn([2, 4, 64, 64], 10, &device));
    let attended = || attention(q.clone(), k.clone(), v.clone(), AttentionOptions::default());
    assert_eq!(taken(attended), (4 * 2 * 4 * 64 * 64, 0), "attention");
    let swapped = |t: &Tensor<4>| t.clone().swap_dims(1, 2);
    let attended = || attention(swapped(&q), swapped(&k), swapped(&v), AttentionOptions::default());
    assert_eq!(taken(attended), (4 * 2 * 4 * 64 * 64, 0), "attention of swapped heads");

    let (x, residual) = (drawn([256, 384], 11, &device), drawn([256, 384], 12, &device));
    let normed = || norm_residual(x.clone(), residual.clone(), NormOptions::default());
    assert_eq!(taken(normed), (2 * 4 * 256 * 384, 0), "a norm and its sum");
}

#[test]
fn strides_that_no_kernel_takes_cost_one_copy_which_is_counted() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let device = Device::flex();
    let (a, b) = (drawn([256, 384], 1, &device), drawn([384, 640], 2, &device));
    let column = drawn([256, 1], 3, &device);
    let product = || matmul(column.clone().expand([256, 384]), b.clone());
    let (bytes, copied) = taken(product);
    assert_eq!(copied, 1);
    assert!(bytes >= 4 * (256 * 640 + 256 * 384), "{bytes}");
    // Rows with padding between them are read as they are.
    let product = || matmul(a.clone(), b.clone().slice(burn::tensor::s![.., 0..320]));
    let (bytes, copied) = taken(product);
    assert!(copied == 0 && bytes <= 4 * (256 * 320 + 384 * 320), "{bytes}, {copied} copies");
}
