//! A CubeCL server that does nothing: as much of one as a `Client` and its tuner ask for. Only profiling is real.

use std::sync::Arc;

use cubecl_common::bytes::Bytes;
use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle, ServiceId};
use cubecl_common::profile::{Instant, ProfileDuration, TimingMethod};
use cubecl_environment::future::DynFut;
use cubecl_environment::stream::StreamId;
use cubecl_ir::features::Features;
use cubecl_ir::{DeviceIdentity, DeviceProperties, HardwareProperties, MemoryDeviceProperties, TargetProperties};
use cubecl_runtime::client::Client;
use cubecl_runtime::dry_run::LaunchMode;
use cubecl_runtime::kernel::CubeKernel;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::memory_management::{ManagedMemoryHandle, MemoryAllocationMode, StreamMemoryReport};
use cubecl_runtime::server::{
    BufferBinding, CopyDescriptor, CubeCount, Handle, IoError, KernelArguments, MemoryLayout, MemoryLayoutDescriptor,
    MemoryLayoutPolicy, ProfileError, ProfilingToken, Server, ServerCommunication, ServerError, ServerStorage,
    ServerUtilities,
};
use cubecl_runtime::storage::{ComputeStorage, ManagedResource, StorageHandle, StorageId};

const NO_MEMORY: &str = "the null server has no memory";

/// A client of a null server.
pub fn client(device: DeviceId) -> Client {
    Client::init(device, NullServer::init(device))
}

#[derive(Debug)]
struct NullServer {
    utilities: Arc<ServerUtilities>,
    windows: Vec<Instant>,
}

impl DeviceService for NullServer {
    fn init(device: DeviceId) -> Self {
        let hardware = HardwareProperties {
            load_width: 128,
            vector_register_count: None,
            plane_size_min: 32,
            plane_size_max: 32,
            max_bindings: 32,
            max_shared_memory_size: 48 << 10,
            max_cube_count: (65_535, 65_535, 65_535),
            max_units_per_cube: 1_024,
            max_cube_dim: (1_024, 1_024, 64),
            num_streaming_multiprocessors: None,
            num_cpu_cores: None,
            last_level_cache_size: None,
            num_tensor_cores: None,
            min_tensor_cores_dim: None,
            max_vector_size: 4,
            cube_mma_reserved_shared_memory: 0,
        };
        let memory = MemoryDeviceProperties::new(1 << 30, 256);
        let properties = DeviceProperties::new(
            Features::default(),
            memory,
            hardware,
            TimingMethod::System,
            DeviceIdentity::default(),
        );
        let logger = Arc::new(ServerLogger::default());
        let service = ServiceId::of::<Self>(device);
        let (utilities, _) =
            ServerUtilities::init(service, "null", properties, TargetProperties::default(), logger, NoMemory);
        NullServer { utilities: Arc::new(utilities), windows: Vec::new() }
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        self.utilities.clone()
    }
}

impl ServerCommunication for NullServer {}

impl Server for NullServer {
    fn initialize_memory(&mut self, _: ManagedMemoryHandle, _: u64, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    fn logger(&self) -> Arc<ServerLogger> {
        self.utilities.logger.clone()
    }

    fn utilities(&self) -> Arc<ServerUtilities> {
        self.utilities.clone()
    }

    fn read(&mut self, _: Vec<CopyDescriptor>, _: StreamId) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        unimplemented!("{NO_MEMORY}")
    }

    fn write(&mut self, _: Vec<(CopyDescriptor, Bytes)>, _: StreamId) {}

    fn sync(&mut self, _: Vec<BufferBinding>, _: StreamId) -> DynFut<Result<(), ServerError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn check(&mut self, _: Vec<BufferBinding>, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    unsafe fn launch(&mut self, _: Box<dyn CubeKernel>, _: CubeCount, _: KernelArguments, _: StreamId, _: LaunchMode) {}

    fn flush(&mut self, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    fn memory_report(&mut self, _: StreamId) -> Option<StreamMemoryReport> {
        None
    }

    fn memory_cleanup(&mut self, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    fn start_profile(&mut self, _: StreamId) -> Result<ProfilingToken, ServerError> {
        self.windows.push(Instant::now());
        Ok(ProfilingToken { id: self.windows.len() as u64 })
    }

    fn end_profile(&mut self, _: StreamId, _: ProfilingToken) -> Result<ProfileDuration, ProfileError> {
        let end = Instant::now();
        Ok(ProfileDuration::new_system_time(self.windows.pop().unwrap_or(end), end))
    }

    fn allocation_mode(&mut self, _: MemoryAllocationMode, _: StreamId) {}
}

impl ServerStorage for NullServer {
    type Storage = NoMemory;
    fn get_resource(&mut self, _: BufferBinding, _: StreamId) -> Result<ManagedResource<()>, ServerError> {
        unimplemented!("{NO_MEMORY}")
    }
}

struct NoMemory;

impl MemoryLayoutPolicy for NoMemory {
    fn apply(&self, _: ServiceId, _: StreamId, _: &[MemoryLayoutDescriptor]) -> (Handle, Vec<MemoryLayout>) {
        unimplemented!("{NO_MEMORY}")
    }
}

impl ComputeStorage for NoMemory {
    type Resource = ();
    fn alignment(&self) -> usize {
        256
    }
    fn get(&mut self, _: &StorageHandle) -> Result<(), IoError> {
        unimplemented!("{NO_MEMORY}")
    }
    fn alloc(&mut self, _: u64) -> Result<StorageHandle, IoError> {
        unimplemented!("{NO_MEMORY}")
    }
    fn dealloc(&mut self, _: StorageId) {}
    fn flush(&mut self) {}
    fn bytes_allocated(&self) -> u64 {
        0
    }
}
