//! Capsules: memory of ours comes in, a DLPack capsule for another library goes out; and torch's exchange API comes out
//! of its capsule.

use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use warplap::DType;
use warplap::core::slot::Slot;

use crate::tensor::dlpack::{self, DlDevice, DlManaged, DlTensor, DlType};
use crate::tensor::view::View;

/// One buffer of a launch: address, type, sizes and strides as torch counts them.
pub(crate) struct Buffer {
    pub(crate) address: usize,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
}

impl Buffer {
    /// A slot's memory at an address.
    pub(crate) fn at(address: usize, slot: &Slot) -> Self {
        let signed = |sizes: &[usize]| sizes.iter().map(|s| *s as i64).collect();
        Buffer { address, dtype: slot.dtype, shape: signed(&slot.shape), strides: signed(&slot.strides) }
    }
}

/// A DLPack capsule over memory that somebody else owns, for a consumer to take.
pub(crate) fn capsule<'py>(py: Python<'py>, buffer: &Buffer, device: DlDevice) -> PyResult<Bound<'py, PyAny>> {
    let Buffer { address, dtype, shape, strides } = buffer;
    struct Owner {
        managed: DlManaged,
        sizes: Vec<i64>,
    }
    unsafe extern "C" fn drop_owner(managed: *mut DlManaged) {
        // SAFETY: `context` is the box made below, and a consumer calls its deleter once.
        unsafe { drop(Box::from_raw((*managed).context.cast::<Owner>())) }
    }
    unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
        // SAFETY: called by Python with the capsule itself; a capsule that was taken has another name by then.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule, c"dltensor".as_ptr()) == 1 {
                drop_owner(ffi::PyCapsule_GetPointer(capsule, c"dltensor".as_ptr()).cast());
            }
        }
    }
    let tensor = DlTensor {
        data: *address as *mut _,
        device,
        ndim: shape.len() as i32,
        dtype: DlType::of(*dtype).0,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = DlManaged { tensor, context: std::ptr::null_mut(), deleter: Some(drop_owner) };
    let owner = Box::into_raw(Box::new(Owner { managed, sizes: [&shape[..], &strides[..]].concat() }));
    // SAFETY: `owner` was made above and belongs to the capsule from here on.
    unsafe {
        (*owner).managed.context = owner.cast();
        (*owner).managed.tensor.shape = (*owner).sizes.as_mut_ptr();
        (*owner).managed.tensor.strides = (*owner).sizes.as_mut_ptr().add(shape.len());
        let capsule = ffi::PyCapsule_New((&raw mut (*owner).managed).cast(), c"dltensor".as_ptr(), Some(drop_capsule));
        if capsule.is_null() {
            drop(Box::from_raw(owner));
            return Err(PyErr::fetch(py));
        }
        Ok(Bound::from_owned_ptr(py, capsule))
    }
}

/// The exchange API in a capsule, if this program understands it.
pub(crate) fn exchange_api(object: &Bound<'_, PyAny>) -> Option<*const dlpack::ExchangeApi> {
    let capsule = object.cast::<PyCapsule>().ok()?;
    // SAFETY: asks for the pointer by its documented name.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), dlpack::EXCHANGE.as_ptr()) };
    if pointer.is_null() {
        drop(PyErr::take(object.py()));
        return None;
    }
    let api = pointer.cast::<dlpack::ExchangeApi>().cast_const();
    // SAFETY: the capsule's documentation says that the structure lives as long as the process.
    (unsafe { (*api).version.major } == 1).then_some(api)
}

/// Looks at a tensor through the exchange API.
///
/// # Safety
/// `api` is whole and belongs to the object's type.
pub(crate) unsafe fn peek(api: *const dlpack::ExchangeApi, object: &Bound<'_, PyAny>, name: &str) -> PyResult<View> {
    let mut tensor = MaybeUninit::<DlTensor>::uninit();
    // SAFETY: the API's contract: 0 means that the structure was filled.
    let done = unsafe { (*api).peek.map(|peek| peek(object.as_ptr(), tensor.as_mut_ptr())) };
    match done {
        // SAFETY: it was filled just now.
        Some(0) => unsafe { View::of_dlpack(tensor.assume_init_ref(), name) },
        Some(_) => Err(PyErr::fetch(object.py())),
        None => View::of_capsule(object, name),
    }
}
