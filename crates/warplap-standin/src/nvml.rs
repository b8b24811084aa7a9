//! NVML: an energy counter that moves every 20 milliseconds. A launch of `//@ add 3` draws three millijoules, any other
//! one. What is not energy is not told. Loaded through `WARPLAP_NVML`.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::state::state;

/// How often the counter moves.
const TICK: Duration = Duration::from_millis(20);
/// NVML_ERROR_NOT_SUPPORTED.
const NOT_TOLD: i32 = 3;

/// When the counter last moved, and to how many millijoules.
fn counter() -> &'static Mutex<Option<(Instant, u64)>> {
    static COUNTER: OnceLock<Mutex<Option<(Instant, u64)>>> = OnceLock::new();
    COUNTER.get_or_init(Mutex::default)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInit_v2() -> i32 {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(_bus: usize, to: *mut usize) -> i32 {
    unsafe { to.write(1) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEnergyConsumption(_device: usize, to: *mut u64) -> i32 {
    let drawn = state().millijoules;
    let mut counter = counter().lock().unwrap_or_else(PoisonError::into_inner);
    let moved = counter.filter(|(at, _)| at.elapsed() < TICK).unwrap_or_else(|| (Instant::now(), drawn));
    *counter = Some(moved);
    unsafe { to.write(moved.1) };
    0
}

macro_rules! silent {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> i32 {
            NOT_TOLD
        }
    )* };
}

silent! {
    nvmlDeviceGetClockInfo
    nvmlDeviceGetMaxClockInfo
    nvmlDeviceGetTemperature
    nvmlDeviceGetPowerUsage
    nvmlDeviceGetCurrentClocksThrottleReasons
    nvmlDeviceGetComputeRunningProcesses_v3
    nvmlDeviceGetProcessUtilization
}
