//! Device memory: owned buffers, and the borrowed views that kernels read and write.

use std::marker::PhantomData;
use std::sync::Arc;

use warplap_core::array::Array;
use warplap_core::device::Span;
use warplap_core::dtype::DType;
use warplap_core::each_array;

use crate::driver::{Context, Relaxed, Stream};
use crate::error::CudaError;

/// Owned device memory with its element type.
#[derive(Debug)]
pub struct Buffer {
    context: Arc<Context>,
    // The queue in whose order it came from the pool and goes back.
    home: Option<Arc<Stream>>,
    pub(crate) address: u64,
    pub(crate) len: usize,
    pub(crate) dtype: DType,
}

impl Buffer {
    /// Memory for whoever wants it, on any stream.
    pub(crate) fn new(context: &Arc<Context>, dtype: DType, len: usize) -> Result<Self, CudaError> {
        let address = context.alloc(len * dtype.bytes())?;
        Ok(Buffer { context: context.clone(), home: None, address, len, dtype })
    }

    /// Memory of the pool, where there is one, for what is launched on one stream and on no other.
    pub(crate) fn queued(stream: &Arc<Stream>, dtype: DType, len: usize) -> Result<Self, CudaError> {
        let context = stream.context.clone();
        let pooled = context.pool().map_or(Ok(None), |pool| pool.alloc(len * dtype.bytes(), stream))?;
        match pooled {
            Some(address) => Ok(Buffer { context, home: Some(stream.clone()), address, len, dtype }),
            None => Buffer::new(&context, dtype, len),
        }
    }

    /// The caller has checked type and length.
    pub(crate) fn fill(&mut self, array: &Array, stream: &Stream) -> Result<(), CudaError> {
        let bytes = bytes_of(array);
        // SAFETY: the buffer holds as many bytes as the array.
        unsafe { stream.copy_in(self.address, &bytes[..bytes.len().min(self.len * self.dtype.bytes())]) }
    }

    pub(crate) fn read(&self, stream: &Stream) -> Result<Array, CudaError> {
        let mut array = Array::filled(self.dtype, self.len, 0.0);
        // SAFETY: the array was made as long as the buffer.
        unsafe { stream.copy_out(bytes_of_mut(&mut array), self.address) }?;
        Ok(array)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.home.as_ref().zip(self.context.pool()) {
            // SAFETY: allocated in `queued`, whose caller launches on this stream alone; views borrow the buffer, so
            // none is left.
            Some((home, pool)) => unsafe { pool.free(self.address, home) },
            // SAFETY: allocated in `new`; views borrow the buffer, so none is left.
            None => unsafe { self.context.free(self.address) },
        }
    }
}

impl Stream {
    /// The elements of a view, once everything queued before has run. Waits; nothing for a stream that is captured.
    pub fn read(&self, view: &View<'_>) -> Result<Array, CudaError> {
        let mut array = Array::filled(view.dtype, view.len, 0.0);
        // SAFETY: the array was made as long as the view, which borrows its memory.
        unsafe { self.copy_out(bytes_of_mut(&mut array), view.address) }?;
        Ok(array)
    }

    /// The elements of a buffer, once everything queued before has run. Waits; nothing for a stream that is captured.
    pub fn read_buffer(&self, buffer: &Buffer) -> Result<Array, CudaError> {
        buffer.read(self)
    }

    /// Queues a copy of a view into another one, from one of its elements on. Becomes part of the graph where this
    /// stream is captured.
    pub fn copy_into(&self, to: &mut ViewMut<'_>, start: usize, from: &View<'_>) -> Result<(), CudaError> {
        let fits = start.checked_add(from.len).is_some_and(|end| end <= to.len) && to.dtype == from.dtype;
        if !fits {
            let (dtype, len) = (from.dtype, from.len);
            return Err(CudaError::Fit(format!("{len} {dtype} from {start} on do not fit {} {}", to.len, to.dtype)));
        }
        if from.len == 0 {
            return Ok(());
        }
        let width = from.dtype.bytes();
        // SAFETY: both views borrow their memory, which holds so many bytes (checked); one is borrowed to be written,
        // so they do not overlap.
        unsafe { self.copy_across(to.address + (start * width) as u64, from.address, from.len * width) }
    }

    /// A new buffer whose elements nobody has written yet.
    pub fn alloc(&self, dtype: DType, len: usize) -> Result<Buffer, CudaError> {
        Buffer::new(&self.context, dtype, len)
    }

    /// A new buffer with these elements. Waits; where this stream is captured, for another one.
    pub fn upload(&self, array: &Array) -> Result<Buffer, CudaError> {
        let mut buffer = Buffer::new(&self.context, array.dtype(), array.len())?;
        self.fill(&mut buffer, array)?;
        Ok(buffer)
    }

    /// A new buffer of so many numbers of 4 bytes that begins with these. Waits as `upload` does.
    pub fn alloc_begun(&self, len: usize, first: &Array) -> Result<Buffer, CudaError> {
        let mut buffer = Buffer::new(&self.context, first.dtype(), len.max(first.len()))?;
        self.fill(&mut buffer, first)?;
        Ok(buffer)
    }

    fn fill(&self, buffer: &mut Buffer, array: &Array) -> Result<(), CudaError> {
        if !self.is_capturing()? {
            return buffer.fill(array, self);
        }
        // A copy on this stream would become part of its graph.
        let _relaxed = Relaxed::new(&self.context);
        buffer.fill(array, &Stream::new(&self.context)?)
    }
}

impl Buffer {
    /// Its address in device memory.
    pub fn address(&self) -> u64 {
        self.address
    }
}

fn bytes_of(array: &Array) -> &[u8] {
    // SAFETY: numbers have no padding and any byte may be read; the slice borrows the array.
    each_array!(array, v => unsafe { std::slice::from_raw_parts(v.as_ptr().cast(), size_of_val(&v[..])) })
}

fn bytes_of_mut(array: &mut Array) -> &mut [u8] {
    // SAFETY: any bytes are a valid number of these types; the slice borrows the array.
    each_array!(array, v => unsafe { std::slice::from_raw_parts_mut(v.as_mut_ptr().cast(), size_of_val(&v[..])) })
}

/// Borrowed device memory that kernels read.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) address: u64,
    pub(crate) len: usize,
    pub(crate) dtype: DType,
    pub(crate) borrow: PhantomData<&'a ()>,
}

/// Borrowed device memory that kernels write.
#[derive(Debug)]
pub struct ViewMut<'a> {
    pub(crate) address: u64,
    pub(crate) len: usize,
    pub(crate) dtype: DType,
    pub(crate) borrow: PhantomData<&'a mut ()>,
}

macro_rules! view {
    ($name:ident) => {
        impl $name<'_> {
            /// The caller's own device memory (PyTorch's, Burn's).
            ///
            /// # Safety
            /// The address is of device memory of the same device that holds `len` elements for as long as the view
            /// and every launch it is given to live.
            pub unsafe fn from_raw(address: u64, dtype: DType, len: usize) -> Self {
                $name { address, len, dtype, borrow: PhantomData }
            }
            /// Its address in device memory.
            pub fn address(&self) -> u64 {
                self.address
            }
            /// Elements.
            pub fn len(&self) -> usize {
                self.len
            }
            /// Whether it holds no element.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }
            /// Type of its elements.
            pub fn dtype(&self) -> DType {
                self.dtype
            }
        }

        impl Span for $name<'_> {
            fn dtype(&self) -> DType {
                self.dtype
            }
            fn len(&self) -> usize {
                self.len
            }
        }
    };
}
view!(View);
view!(ViewMut);

impl<'a> From<&'a Buffer> for View<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        View { address: buffer.address, len: buffer.len, dtype: buffer.dtype, borrow: PhantomData }
    }
}

impl<'a> From<&'a mut Buffer> for ViewMut<'a> {
    fn from(buffer: &'a mut Buffer) -> Self {
        ViewMut { address: buffer.address, len: buffer.len, dtype: buffer.dtype, borrow: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_array_are_its_numbers_in_order() {
        let mut array = Array::F32(vec![1.0, -2.0]);
        assert_eq!(bytes_of(&array), [1f32.to_ne_bytes(), (-2f32).to_ne_bytes()].concat());
        bytes_of_mut(&mut array)[4..].copy_from_slice(&7f32.to_ne_bytes());
        assert_eq!(array, Array::F32(vec![1.0, 7.0]));
        for dtype in DType::ALL {
            assert_eq!(bytes_of(&Array::filled(dtype, 3, 0.0)).len(), 3 * dtype.bytes(), "{dtype}");
        }
        bytes_of_mut(&mut Array::filled(DType::Bool, 1, 0.0))[0] = 7;
    }
}
