//! cuSPARSE: NVIDIA's block-sparse products, found at run time. What comes in is the shape of a product; what goes out
//! is an object that queues it on matrices at given addresses.

use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use libloading::Library;
use warplap_core::dtype::DType;

use crate::device::Cuda;
use crate::driver::{Context, Stream};
use crate::error::CudaError;
use crate::libraries::finder::Wanted;
use crate::memory::Buffer;
use crate::workspaces::Workspaces;

const CUSPARSE: Wanted = Wanted {
    stem: "libcusparse.so",
    variable: "WARPLAP_CUSPARSE",
    folder: "cusparse",
    package: "nvidia-cusparse",
    majors: &["12", "13"],
};

type SparseOpaque = *mut c_void;

macro_rules! table {
    ($($name:ident = $symbol:literal ($($ty:ty),*);)*) => {
        /// The library's functions, loaded once per process.
        pub struct Sparse {
            _library: Library,
            $($name: unsafe extern "C" fn($($ty),*) -> i32,)*
        }

        impl Sparse {
            fn open(path: &Path) -> Result<Self, libloading::Error> {
                // SAFETY: NVIDIA's library, whose initialisers ask nothing of their loader; the signatures are those of
                // cusparse.h.
                unsafe {
                    let library = Library::new(path)?;
                    Ok(Sparse {
                        $($name: *library.get(concat!($symbol, "\0").as_bytes())?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

table! {
    create = "cusparseCreate" (*mut SparseOpaque);
    destroy = "cusparseDestroy" (SparseOpaque);
    set_stream = "cusparseSetStream" (SparseOpaque, usize);
    property = "cusparseGetProperty" (i32, *mut i32);
    bsr = "cusparseCreateBsr" (*mut SparseOpaque, i64, i64, i64, i64, i64, u64, u64, u64, i32, i32, i32, i32, i32);
    ell = "cusparseCreateBlockedEll" (*mut SparseOpaque, i64, i64, i64, i64, u64, u64, i32, i32, i32);
    dense = "cusparseCreateDnMat" (*mut SparseOpaque, i64, i64, i64, u64, i32, i32);
    drop_sparse = "cusparseDestroySpMat" (SparseOpaque);
    drop_dense = "cusparseDestroyDnMat" (SparseOpaque);
    room = "cusparseSpMM_bufferSize" (SparseOpaque, i32, i32, *const f32, SparseOpaque, SparseOpaque, *const f32, SparseOpaque, i32, i32, *mut usize);
    multiply = "cusparseSpMM" (SparseOpaque, i32, i32, *const f32, SparseOpaque, SparseOpaque, *const f32, SparseOpaque, i32, i32, u64);
}

impl Sparse {
    /// The process's library: `WARPLAP_CUSPARSE` (a file or folder), the active Python environment, the toolkit, the
    /// loader.
    pub fn get() -> Result<&'static Sparse, CudaError> {
        static SPARSE: OnceLock<Result<Sparse, CudaError>> = OnceLock::new();
        let result = || CUSPARSE.first(Self::open).map_err(|said| CudaError::NoLibrary(format!("cuSPARSE: {said}")));
        SPARSE.get_or_init(result).as_ref().map_err(Clone::clone)
    }

    /// Its version: major, minor and patch.
    pub fn version(&self) -> [i32; 3] {
        [0, 1, 2].map(|part| {
            let mut value = 0;
            // SAFETY: asks for a number and needs no handle.
            let status = unsafe { (self.property)(part, &mut value) };
            if status == 0 { value } else { -1 }
        })
    }
}

/// An answer of the library as a Result.
fn checked(status: i32, call: &'static str) -> Result<(), CudaError> {
    let said = match status {
        0 => return Ok(()),
        1 => " (not initialised)",
        2 => " (out of memory)",
        3 => " (invalid value)",
        4 => " (not for this architecture)",
        6 => " (execution failed)",
        7 => " (internal error)",
        8 => " (matrix type not supported)",
        10 => " (not supported)",
        11 => " (insufficient resources)",
        _ => "",
    };
    Err(CudaError::Library { status, call, said })
}

/// How the sparse matrix lies in memory. Indices are of 32 bits and count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Compressed rows of so many blocks, each row-major: row pointers, columns, values.
    Bsr(u64),
    /// As many blocks in every block row, columns that are -1 being none: columns, values.
    Ell(u64),
}

/// A product C (m×n) = alpha · A (m×k, square blocks) · B (k×n) + beta · C, f32 sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpmmSpec {
    /// Type of the elements: f32, f16 or bf16.
    pub dtype: DType,
    /// Rows of A and C.
    pub m: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Rows and columns of a block.
    pub bs: u64,
    /// How A lies in memory.
    pub blocks: Blocks,
    /// Whether B is column-major.
    pub b_col: bool,
    /// Whether C is column-major.
    pub c_col: bool,
}

/// Where the matrices of one product lie. Row pointers are not looked at for [`Blocks::Ell`].
#[derive(Clone, Copy, Debug)]
pub struct SpmmAt {
    /// Row pointers.
    pub row_ptr: u64,
    /// Block columns.
    pub columns: u64,
    /// Blocks.
    pub values: u64,
    /// B.
    pub b: u64,
    /// C.
    pub c: u64,
}

/// A product of this library.
pub struct Spmm {
    sparse: &'static Sparse,
    context: Arc<Context>,
    spec: SpmmSpec,
    dtype: i32,
    // The stream is a property of the handle: one launch at a time says which.
    handle: Mutex<SparseHandle>,
}

struct SparseHandle {
    at: SparseOpaque,
    workspaces: Workspaces,
}

// SAFETY: the handle is used under its lock alone.
unsafe impl Send for SparseHandle {}

impl Spmm {
    /// Makes the library ready for a product.
    pub fn new(spec: SpmmSpec, cuda: &Cuda) -> Result<Self, CudaError> {
        let sparse = Sparse::get()?;
        let dtype = match spec.dtype {
            DType::F32 => 0,
            DType::F16 => 2,
            DType::Bf16 => 14,
            other => return Err(CudaError::NoLibrary(format!("product of {other} in cuSPARSE"))),
        };
        let context = cuda.context().clone();
        // Makes the context current: the library's handle belongs to it.
        context.api()?;
        let mut at = std::ptr::null_mut();
        // SAFETY: the pointer is to a local; what is made here is destroyed in `drop`.
        checked(unsafe { (sparse.create)(&mut at) }, "cusparseCreate")?;
        Ok(Spmm {
            sparse,
            context,
            spec,
            dtype,
            handle: Mutex::new(SparseHandle { at, workspaces: Workspaces::default() }),
        })
    }

    /// Queues the product of the matrices at these addresses.
    ///
    /// # Safety
    /// The addresses are of device memory that holds what the spec spans until the product has ended, and the indices
    /// are those of such a matrix. C is not read where beta is 0.
    pub unsafe fn launch(&self, at: &SpmmAt, (alpha, beta): (f32, f32), stream: &Stream) -> Result<(), CudaError> {
        self.context.api()?;
        let (sparse, s, dtype) = (self.sparse, &self.spec, self.dtype);
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let [m, k, n, bs] = [s.m, s.k, s.n, s.bs].map(|size| size as i64);
        let mut made = SparseMade { sparse, a: std::ptr::null_mut(), dense: [std::ptr::null_mut(); 2] };
        // The numbers are those of cusparse.h: 2 is an index of 32 bits, 0 counting from zero, 1 and 2 column- and
        // row-major. SAFETY: pointers are to locals that outlive the calls; the caller's word for the matrices.
        unsafe {
            checked((sparse.set_stream)(handle.at, stream.handle()), "cusparseSetStream")?;
            let (call, status) = match s.blocks {
                Blocks::Bsr(nnz) => {
                    let (rows, columns, nnz) = (m / bs, k / bs, nnz as i64);
                    let (row_ptr, col_idx, a) = (at.row_ptr, at.columns, &mut made.a);
                    let values = at.values;
                    let status =
                        (sparse.bsr)(a, rows, columns, nnz, bs, bs, row_ptr, col_idx, values, 2, 2, 0, dtype, 2);
                    ("cusparseCreateBsr", status)
                }
                Blocks::Ell(wide) => {
                    let wide = wide as i64 * bs;
                    let status = (sparse.ell)(&mut made.a, m, k, bs, wide, at.columns, at.values, 2, 0, dtype);
                    ("cusparseCreateBlockedEll", status)
                }
            };
            checked(status, call)?;
            let [b, c] = &mut made.dense;
            let (pitch, order) = if s.b_col { (k, 1) } else { (n, 2) };
            checked((sparse.dense)(b, k, n, pitch, at.b, dtype, order), "cusparseCreateDnMat")?;
            let (pitch, order) = if s.c_col { (m, 1) } else { (n, 2) };
            checked((sparse.dense)(c, m, n, pitch, at.c, dtype, order), "cusparseCreateDnMat")?;
            let ([b, c], a, alg) = (made.dense, made.a, if matches!(s.blocks, Blocks::Ell(_)) { 13 } else { 14 });
            let mut bytes = 0;
            let status = (sparse.room)(handle.at, 0, 0, &alpha, a, b, &beta, c, 0, alg, &mut bytes);
            checked(status, "cusparseSpMM_bufferSize")?;
            let room = handle.room(bytes, &self.context, stream)?;
            checked((sparse.multiply)(handle.at, 0, 0, &alpha, a, b, &beta, c, 0, alg, room), "cusparseSpMM")
        }
    }
}

impl SparseHandle {
    /// The address of a workspace of a stream.
    fn room(&self, bytes: usize, context: &Arc<Context>, stream: &Stream) -> Result<u64, CudaError> {
        let words = bytes.div_ceil(4).max(4);
        self.workspaces.address(stream, words, || Buffer::new(context, DType::F32, words))
    }
}

/// The descriptors of one launch.
struct SparseMade {
    sparse: &'static Sparse,
    a: SparseOpaque,
    dense: [SparseOpaque; 2],
}

impl Drop for SparseMade {
    fn drop(&mut self) {
        // SAFETY: each was made by the library or is null; a queued product no longer needs them.
        unsafe {
            if !self.a.is_null() {
                (self.sparse.drop_sparse)(self.a);
            }
            for dense in self.dense.into_iter().filter(|d| !d.is_null()) {
                (self.sparse.drop_dense)(dense);
            }
        }
    }
}

impl Drop for Spmm {
    fn drop(&mut self) {
        let _ = self.context.api();
        let handle = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: made in `new`, and nobody uses it any more.
        unsafe { (self.sparse.destroy)(handle.at) };
    }
}

impl std::fmt::Debug for Spmm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spmm").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Sparse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sparse").field("version", &self.version()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_an_error_with_its_meaning() {
        assert_eq!(checked(0, "x"), Ok(()));
        let said = checked(10, "cusparseSpMM").unwrap_err().to_string();
        assert_eq!(said, "cusparseSpMM gave status 10 (not supported)");
    }

    #[test]
    fn where_the_library_is_found_it_has_every_function_and_a_version() {
        match Sparse::get() {
            Ok(result) => assert!(result.version()[0] >= 12, "{result:?}"),
            Err(why) => assert!(why.to_string().contains("WARPLAP_CUSPARSE"), "{why}"),
        }
    }
}
