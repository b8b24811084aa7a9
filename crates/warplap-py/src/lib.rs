//! The native half of the Python package `warplap`: tensors in without a copy, the tuner's choice, the launch.

mod api;
mod call;
mod callables;
mod foreign;
mod launch;
mod products;
mod tensor;

use pyo3::prelude::*;

/// The native half of `warplap`.
#[pymodule]
mod _warplap {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::api::graph::{fusion_matches, graphs_page, guess, partitions};
    #[pymodule_export]
    use crate::api::legal::legal;
    #[pymodule_export]
    use crate::api::logs::connect_logs;
    #[pymodule_export]
    use crate::api::program::program;
    #[pymodule_export]
    use crate::api::search::{PyArm, register_search};
    #[pymodule_export]
    use crate::api::spec::tune_spec;
    #[pymodule_export]
    use crate::api::store::{
        store_export, store_import, store_list, store_misses, store_place, store_prove, store_prune, store_show,
    };
    #[pymodule_export]
    use crate::api::tuning::{bench, device, explain, read_operation, read_problem, tune};
    #[pymodule_export]
    use crate::call::prepared::Prepared;
    #[pymodule_export]
    use crate::call::state::{configure, end_background, forget, is_idle, mode, set_mode, shared_size};
    #[pymodule_export]
    use crate::call::torch::use_torch;
    #[pymodule_export]
    use crate::callables::{kept, race};
    #[pymodule_export]
    use crate::foreign::add_variant;
    #[pymodule_export]
    use crate::launch::by_hand::{Gpu, GpuGemm};
    #[pymodule_export]
    use crate::launch::gpu::{serve_if_asked, set_worker, times};
    #[pymodule_export]
    use crate::launch::launches::{Launch, Launches};
    #[pymodule_export]
    use crate::launch::once::run_once;
    #[pymodule_export]
    use crate::products::attention::{attention_direct, attention_into, attention_new, attention_problem};
    #[pymodule_export]
    use crate::products::bsr::{bsr_direct, bsr_into, bsr_known, bsr_problem};
    #[pymodule_export]
    use crate::products::gemm::{matmul_direct, matmul_into, matmul_known, matmul_problem};
    #[pymodule_export]
    use crate::products::linear::{linear_direct, linear_into, linear_joined, linear_new, linear_problem};
    #[pymodule_export]
    use crate::products::sampled::sampled_into;
    #[pymodule_export]
    use crate::products::sparse_linear::{bsr_blocks_direct, bsr_linear_direct};
    #[pymodule_export]
    use crate::tensor::call_cache::CallCache;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Stores may be in PostgreSQL: WARPLAP_STORE, configure(store=…).
        warplap_fleet::register();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
