//! The one extension of Burn's backends: tensors and a call come in, what it gave goes out. Burn's macro routes it to
//! the backend that the tensors are on; gradients are in [`autodiff`](crate::autodiff).

use burn::backend::{Backend, Flex, backend_extension};

use crate::backends::flex::OnFlex;
use crate::call::Call;
use crate::tensor::tensor_list::TensorList;

/// Backends that run our operations.
#[backend_extension(Flex, Cube: cfg(feature = "cuda"), Autodiff)]
pub(crate) trait Warplap: Backend {
    /// Runs a call on its tensors.
    fn warplap(#[extension_type] tensor_list: TensorList<Self>, call: Call) -> TensorList<Self>;
}

impl Warplap for Flex {
    fn warplap(tensor_list: TensorList<Self>, call: Call) -> TensorList<Self> {
        TensorList::of(
            call.run::<OnFlex>(tensor_list.floats, tensor_list.ints).map(|floats| TensorList::new(floats, Vec::new())),
        )
    }
}

#[cfg(feature = "cuda")]
impl Warplap for burn_cubecl::CubeBackend {
    fn warplap(tensor_list: TensorList<Self>, call: Call) -> TensorList<Self> {
        // A tensor that lies in tiles for one of Burn's kernels is laid back in rows first.
        let rows = |tensors: Vec<_>| tensors.into_iter().map(burn_cubecl::kernel::untile).collect();
        let outcome = call.run::<crate::backends::cube::OnCube>(rows(tensor_list.floats), rows(tensor_list.ints));
        TensorList::of(outcome.map(|floats| TensorList::new(floats, Vec::new())))
    }
}
