//! Elements that kernels store in memory and widen to f32 lanes.

use half::{bf16, f16};

use super::Lanes;

/// An element type kernels read and write; arithmetic is always in f32.
///
/// # Safety
/// Vector functions need the instruction set of `L`, and pointers valid for the elements they touch.
#[allow(clippy::missing_safety_doc)]
pub trait Element: Copy + Send + Sync + Default + 'static {
    /// Widens one.
    fn widen(self) -> f32;
    /// Rounds one to nearest even.
    fn narrow(x: f32) -> Self;
    /// Widens `N`.
    unsafe fn load<L: Lanes>(p: *const Self) -> L::V;
    /// Rounds `N`.
    unsafe fn store<L: Lanes>(p: *mut Self, v: L::V);
    /// Rounds `N`, past the caches; `p` lies on a multiple of the bytes they take.
    unsafe fn stream<L: Lanes>(p: *mut Self, v: L::V);

    /// Widens the first `n < N`, zero in the other lanes.
    #[inline(always)]
    unsafe fn load_first<L: Lanes>(p: *const Self, n: usize) -> L::V {
        const { assert!(L::N <= MOST) }
        // SAFETY: the caller's pointer is valid for n elements.
        unsafe { L::load(widened(p, n).as_ptr()) }
    }

    /// Rounds the first `n < N`.
    #[inline(always)]
    unsafe fn store_first<L: Lanes>(p: *mut Self, v: L::V, n: usize) {
        let mut wide = [0f32; MOST];
        const { assert!(L::N <= MOST) }
        // SAFETY: the caller's pointer is valid for n elements.
        unsafe {
            L::store(wide.as_mut_ptr(), v);
            narrowed(&wide, p, n);
        }
    }
}

/// The lanes of the widest vector.
const MOST: usize = 16;

/// The first elements, widened. A function of its own: inlined into every tile of every kernel, such ends of lines were
/// most of what was compiled.
#[inline(never)]
unsafe fn widened<T: Element>(p: *const T, n: usize) -> [f32; MOST] {
    let mut wide = [0f32; MOST];
    for (i, w) in wide.iter_mut().enumerate().take(n) {
        // SAFETY: the caller's pointer is valid for n elements.
        *w = unsafe { *p.add(i) }.widen();
    }
    wide
}

/// The first numbers, rounded. A function of its own likewise.
#[inline(never)]
unsafe fn narrowed<T: Element>(wide: &[f32; MOST], p: *mut T, n: usize) {
    for (i, w) in wide.iter().enumerate().take(n) {
        // SAFETY: the caller's pointer is valid for n elements.
        unsafe { *p.add(i) = T::narrow(*w) }
    }
}

impl Element for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
    #[inline(always)]
    fn narrow(x: f32) -> Self {
        x
    }
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const Self) -> L::V {
        // SAFETY: passed on to the caller.
        unsafe { L::load(p) }
    }
    #[inline(always)]
    unsafe fn store<L: Lanes>(p: *mut Self, v: L::V) {
        // SAFETY: passed on to the caller.
        unsafe { L::store(p, v) }
    }
    #[inline(always)]
    unsafe fn stream<L: Lanes>(p: *mut Self, v: L::V) {
        // SAFETY: passed on to the caller.
        unsafe { L::stream(p, v) }
    }
    #[inline(always)]
    unsafe fn load_first<L: Lanes>(p: *const Self, n: usize) -> L::V {
        // SAFETY: passed on to the caller.
        unsafe { L::load_first(p, n) }
    }
    #[inline(always)]
    unsafe fn store_first<L: Lanes>(p: *mut Self, v: L::V, n: usize) {
        // SAFETY: passed on to the caller.
        unsafe { L::store_first(p, v, n) }
    }
}

impl Element for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn narrow(x: f32) -> Self {
        f16::from_f32(x)
    }
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const Self) -> L::V {
        // SAFETY: passed on to the caller.
        unsafe { L::load_f16(p) }
    }
    #[inline(always)]
    unsafe fn store<L: Lanes>(p: *mut Self, v: L::V) {
        // SAFETY: passed on to the caller.
        unsafe { L::store_f16(p, v) }
    }
    #[inline(always)]
    unsafe fn stream<L: Lanes>(p: *mut Self, v: L::V) {
        // SAFETY: passed on to the caller.
        unsafe { L::stream_f16(p, v) }
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn narrow(x: f32) -> Self {
        bf16::from_f32(x)
    }
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const Self) -> L::V {
        // SAFETY: passed on to the caller.
        unsafe { L::load_bf16(p) }
    }
    #[inline(always)]
    unsafe fn store<L: Lanes>(p: *mut Self, v: L::V) {
        // SAFETY: passed on to the caller.
        unsafe { L::store_bf16(p, v) }
    }
    #[inline(always)]
    unsafe fn stream<L: Lanes>(p: *mut Self, v: L::V) {
        // SAFETY: passed on to the caller.
        unsafe { L::stream_bf16(p, v) }
    }
}
