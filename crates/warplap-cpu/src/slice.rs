//! Borrowed host memory with its element type.

use warplap_core::array::Array;
use warplap_core::device::Span;
use warplap_core::dtype::DType;
use warplap_core::dtypes;

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
    ($($name:ident = $ty:ty, ($doc:literal, $($facts:tt)*);)*) => {
        /// Borrowed elements that kernels read.
        #[derive(Clone, Copy, Debug)]
        pub enum Slice<'a> {
            $(#[doc = $doc] $name(&'a [$ty]),)*
        }

        /// Borrowed elements that kernels write.
        #[derive(Debug)]
        pub enum SliceMut<'a> {
            $(#[doc = $doc] $name(&'a mut [$ty]),)*
        }

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
            /// A copy of them.
            pub fn to_array(&self) -> Array {
                match self { $(Slice::$name(v) => Array::$name(v.to_vec())),* }
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
            /// Overwrites them with as many of an array of their type.
            pub(crate) fn copy_from(self, from: &Array) {
                match (self, from) {
                    $((SliceMut::$name(to), Array::$name(from)) => to.copy_from_slice(from),)*
                    // Whoever calls has checked the types.
                    _ => {}
                }
            }
            /// Where the first one lies.
            pub fn as_mut_ptr(&mut self) -> *mut u8 {
                match self { $(SliceMut::$name(v) => v.as_mut_ptr().cast()),* }
            }
            /// Borrows them for reading.
            pub fn as_slice(&self) -> Slice<'_> {
                match self { $(SliceMut::$name(v) => Slice::$name(v)),* }
            }
            /// Borrows them again for a shorter time.
            pub fn reborrow(&mut self) -> SliceMut<'_> {
                match self { $(SliceMut::$name(v) => SliceMut::$name(v)),* }
            }
        }
    };
}

dtypes!(typed);
