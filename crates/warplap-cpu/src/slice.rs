//! Borrowed host memory with its element type.

use half::{bf16, f16};
use warplap_core::device::Span;
use warplap_core::dtype::DType;

/// Borrowed elements that kernels read.
#[derive(Clone, Copy, Debug)]
pub enum Slice<'a> {
    /// Double precision.
    F64(&'a [f64]),
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision.
    F16(&'a [f16]),
    /// Brain float.
    Bf16(&'a [bf16]),
    /// Indices.
    I32(&'a [i32]),
}

/// Borrowed elements that kernels write.
#[derive(Debug)]
pub enum SliceMut<'a> {
    /// Double precision.
    F64(&'a mut [f64]),
    /// Single precision.
    F32(&'a mut [f32]),
    /// Half precision.
    F16(&'a mut [f16]),
    /// Brain float.
    Bf16(&'a mut [bf16]),
    /// Indices.
    I32(&'a mut [i32]),
}

/// An element type with its place in [`Slice`]; lets generic kernels take typed memory out of a view.
pub trait Typed: Sized + 'static {
    /// Its name.
    const DTYPE: DType;
    /// The elements, if the view holds this type.
    fn read<'a>(view: Slice<'a>) -> Option<&'a [Self]>;
    /// The elements, if the view holds this type.
    fn write(view: SliceMut<'_>) -> Option<&mut [Self]>;
}

macro_rules! typed {
    ($($ty:ty => $name:ident),*) => {
        $(
            impl Typed for $ty {
                const DTYPE: DType = DType::$name;
                fn read<'a>(view: Slice<'a>) -> Option<&'a [Self]> {
                    if let Slice::$name(v) = view { Some(v) } else { None }
                }
                fn write(view: SliceMut<'_>) -> Option<&mut [Self]> {
                    if let SliceMut::$name(v) = view { Some(v) } else { None }
                }
            }
            impl<'a> From<&'a [$ty]> for Slice<'a> {
                fn from(v: &'a [$ty]) -> Self {
                    Slice::$name(v)
                }
            }
            impl<'a> From<&'a mut [$ty]> for SliceMut<'a> {
                fn from(v: &'a mut [$ty]) -> Self {
                    SliceMut::$name(v)
                }
            }
        )*
        impl<'a> Slice<'a> {
            /// The elements from one on, cut to what there is.
            pub fn from(self, start: usize) -> Slice<'a> {
                match self {
                    $(Slice::$name(v) => Slice::$name(&v[start.min(v.len())..]),)*
                }
            }
        }
        impl SliceMut<'_> {
            /// The elements from one on, borrowed anew, cut to what there is.
            pub fn from(&mut self, start: usize) -> SliceMut<'_> {
                match self {
                    $(SliceMut::$name(v) => {
                        let start = start.min(v.len());
                        SliceMut::$name(&mut v[start..])
                    })*
                }
            }
        }
        impl Slice<'_> {
            /// Elements.
            pub fn len(&self) -> usize {
                match self { $(Slice::$name(v) => v.len()),* }
            }
            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
            /// Their type.
            pub fn dtype(&self) -> DType {
                match self { $(Slice::$name(_) => DType::$name),* }
            }
            /// The address of the first.
            pub fn address(&self) -> usize {
                match self { $(Slice::$name(v) => v.as_ptr() as usize),* }
            }
        }
        impl Span for Slice<'_> {
            fn dtype(&self) -> DType {
                Slice::dtype(self)
            }
            fn len(&self) -> usize {
                Slice::len(self)
            }
        }
        impl Span for SliceMut<'_> {
            fn dtype(&self) -> DType {
                SliceMut::dtype(self)
            }
            fn len(&self) -> usize {
                SliceMut::len(self)
            }
        }
        impl SliceMut<'_> {
            /// Elements.
            pub fn len(&self) -> usize {
                match self { $(SliceMut::$name(v) => v.len()),* }
            }
            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
            /// Their type.
            pub fn dtype(&self) -> DType {
                match self { $(SliceMut::$name(_) => DType::$name),* }
            }
            /// Borrows them again for a shorter time.
            pub fn reborrow(&mut self) -> SliceMut<'_> {
                match self { $(SliceMut::$name(v) => SliceMut::$name(v)),* }
            }
        }
    };
}

typed!(f64 => F64, f32 => F32, f16 => F16, bf16 => Bf16, i32 => I32);
