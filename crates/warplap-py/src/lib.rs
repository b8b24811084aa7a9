//! The native half of the Python package `warplap`: tensors in without a copy, the tuner's choice, the launch.

mod argument;
mod attention;
mod bsr;
mod by_hand;
mod by_slot;
mod call;
mod callables;
mod capsule;
mod desk;
mod dlpack;
mod door;
mod end_to_end_race;
mod failure;
mod foreign;
mod gemm;
mod gpu;
mod graph;
mod launches;
mod legal;
mod lent;
mod lie;
mod linear;
mod loaded;
mod logs;
mod maker;
mod moods;
mod once;
mod parameter;
mod pool;
mod program;
mod road;
mod sampled;
mod search;
mod shelf;
mod sparse_linear;
mod spec;
mod state;
mod structure;
mod tensor;
mod torch;
mod watch;

use pyo3::prelude::*;

/// The native half of `warplap`.
#[pymodule]
mod _warplap {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::attention::{attention_direct, attention_into, attention_new, attention_problem};
    #[pymodule_export]
    use crate::bsr::{bsr_direct, bsr_into, bsr_known, bsr_problem};
    #[pymodule_export]
    use crate::by_hand::{Gpu, GpuGemm};
    #[pymodule_export]
    use crate::callables::{kept, race};
    #[pymodule_export]
    use crate::door::Prepared;
    #[pymodule_export]
    use crate::foreign::add_variant;
    #[pymodule_export]
    use crate::gemm::{matmul_direct, matmul_into, matmul_known, matmul_problem};
    #[pymodule_export]
    use crate::gpu::{serve_if_asked, set_worker, times};
    #[pymodule_export]
    use crate::graph::{graphs_page, guess, partitions};
    #[pymodule_export]
    use crate::launches::{Launch, Launches};
    #[pymodule_export]
    use crate::legal::legal;
    #[pymodule_export]
    use crate::lie::lie;
    #[pymodule_export]
    use crate::linear::{linear_direct, linear_into, linear_joined, linear_new, linear_problem};
    #[pymodule_export]
    use crate::logs::connect_logs;
    #[pymodule_export]
    use crate::once::run_once;
    #[pymodule_export]
    use crate::program::program;
    #[pymodule_export]
    use crate::road::{bench, device, explain, read_operation, read_problem, tune};
    #[pymodule_export]
    use crate::sampled::sampled_into;
    #[pymodule_export]
    use crate::search::{PyArm, register_search};
    #[pymodule_export]
    use crate::shelf::{store_export, store_import, store_list, store_misses, store_place, store_prune, store_show};
    #[pymodule_export]
    use crate::sparse_linear::{bsr_blocks_direct, bsr_linear_direct};
    #[pymodule_export]
    use crate::spec::tune_spec;
    #[pymodule_export]
    use crate::state::{configure, end_background, forget, is_idle, mode, set_mode, shared_size};
    #[pymodule_export]
    use crate::torch::use_torch;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Stores may be in PostgreSQL: WARPLAP_STORE, configure(store=…).
        warplap_fleet::register();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
