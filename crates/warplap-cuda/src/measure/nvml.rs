//! NVML, where the driver brings it: clocks, what holds them down, and who else computes on the device. Readings alone;
//! nothing is ever set.

use std::ffi::{CString, c_char, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::chip::Chip;

type Device = *mut c_void;

/// What the device says of itself at one moment. What it does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// The multiprocessors' clock in MHz.
    pub clock_mhz: Option<u32>,
    /// The highest clock they may reach.
    pub most_mhz: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// Watts drawn.
    pub watts: Option<f64>,
    /// What holds the clocks down; an idle device is not held down.
    pub held_by: Vec<&'static str>,
    /// Shares of the multiprocessors' time, in percent, that other processes took lately. `None` where it cannot be
    /// told (in a container whose processes have other numbers).
    pub others: Option<Vec<(u32, u32)>>,
}

impl Readings {
    /// Whether others compute here enough to disturb a race.
    pub fn contended(&self) -> bool {
        self.others.iter().flatten().any(|(_, share)| *share >= DISTURBING)
    }
}

/// Percent of the multiprocessors' time from which another process disturbs a race.
const DISTURBING: u32 = 5;

/// Bits of `nvmlClocksEventReasons` that slow kernels down.
const REASONS: [(u64, &str); 6] = [
    (0x04, "power limit"),
    (0x08, "hardware slowdown"),
    (0x10, "another device's clocks"),
    (0x20, "temperature (software)"),
    (0x40, "temperature (hardware)"),
    (0x80, "power brake"),
];

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sample {
    pid: u32,
    time: u64,
    multiprocessors: u32,
    rest: [u32; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: u32,
    memory: u64,
    instances: [u32; 2],
}

/// The library's functions this crate calls.
struct Nvml {
    _library: Library,
    by_bus: unsafe extern "C" fn(*const c_char, *mut Device) -> i32,
    clock: unsafe extern "C" fn(Device, i32, *mut u32) -> i32,
    most_clock: unsafe extern "C" fn(Device, i32, *mut u32) -> i32,
    temperature: unsafe extern "C" fn(Device, i32, *mut u32) -> i32,
    power: unsafe extern "C" fn(Device, *mut u32) -> i32,
    energy: unsafe extern "C" fn(Device, *mut u64) -> i32,
    reasons: unsafe extern "C" fn(Device, *mut u64) -> i32,
    processes: unsafe extern "C" fn(Device, *mut u32, *mut Process) -> i32,
    usage: unsafe extern "C" fn(Device, *mut Sample, *mut u32, u64) -> i32,
}

impl Nvml {
    fn get() -> Option<&'static Nvml> {
        static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
        NVML.get_or_init(Self::load).as_ref()
    }

    fn load() -> Option<Nvml> {
        // SAFETY: NVIDIA's library has no initialiser that asks anything of its loader; the signatures are nvml.h's.
        unsafe {
            let library = match warplap_core::environment::var("WARPLAP_NVML") {
                Some(named) => Library::new(named).ok()?,
                None => {
                    ["libnvidia-ml.so.1", "libnvidia-ml.so", "nvml.dll"].iter().find_map(|n| Library::new(*n).ok())?
                }
            };
            let init: unsafe extern "C" fn() -> i32 = *library.get(b"nvmlInit_v2\0").ok()?;
            if init() != 0 {
                return None;
            }
            Some(Nvml {
                by_bus: *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok()?,
                clock: *library.get(b"nvmlDeviceGetClockInfo\0").ok()?,
                most_clock: *library.get(b"nvmlDeviceGetMaxClockInfo\0").ok()?,
                temperature: *library.get(b"nvmlDeviceGetTemperature\0").ok()?,
                power: *library.get(b"nvmlDeviceGetPowerUsage\0").ok()?,
                energy: *library.get(b"nvmlDeviceGetTotalEnergyConsumption\0").ok()?,
                reasons: *library.get(b"nvmlDeviceGetCurrentClocksThrottleReasons\0").ok()?,
                processes: *library.get(b"nvmlDeviceGetComputeRunningProcesses_v3\0").ok()?,
                usage: *library.get(b"nvmlDeviceGetProcessUtilization\0").ok()?,
                _library: library,
            })
        }
    }
}

/// Opens the library ahead of the first reading.
pub(crate) fn open() {
    let _ = Nvml::get();
}

/// NVML and its handle of a device; `None` where there is no NVML or it does not know the device.
fn find(chip: &Chip) -> Option<(&'static Nvml, Device)> {
    let nvml = Nvml::get()?;
    let bus = CString::new(chip.bus.as_str()).ok()?;
    let mut device: Device = std::ptr::null_mut();
    // SAFETY: the text ends in zero, the pointer is to a local.
    (unsafe { (nvml.by_bus)(bus.as_ptr(), &mut device) } == 0).then_some((nvml, device))
}

/// Joules a device has drawn since the driver was loaded, where NVML tells.
pub(crate) fn joules(chip: &Chip) -> Option<f64> {
    let (nvml, device) = find(chip)?;
    let mut milli = 0u64;
    // SAFETY: the handle is the library's own, the pointer is to a local.
    (unsafe { (nvml.energy)(device, &mut milli) } == 0).then_some(milli as f64 / 1e3)
}

/// Reads a device; `None` where there is no NVML or it does not know the device.
pub(crate) fn read(chip: &Chip) -> Option<Readings> {
    let (nvml, device) = find(chip)?;
    let number = |read: &dyn Fn(*mut u32) -> i32| {
        let mut value = 0;
        (read(&mut value) == 0).then_some(value)
    };
    let mut reasons = 0u64;
    // SAFETY: the handle is the library's own, every pointer is to a local.
    unsafe {
        let message = (nvml.reasons)(device, &mut reasons) == 0;
        let held_by = REASONS.iter().filter(|(bit, _)| message && reasons & bit != 0).map(|(_, name)| *name).collect();
        Some(Readings {
            clock_mhz: number(&|v| (nvml.clock)(device, 1, v)),
            most_mhz: number(&|v| (nvml.most_clock)(device, 1, v)),
            temperature: number(&|v| (nvml.temperature)(device, 0, v)),
            watts: number(&|v| (nvml.power)(device, v)).map(|milli| f64::from(milli) / 1e3),
            held_by,
            others: others(nvml, device),
        })
    }
}

fn others(nvml: &Nvml, device: Device) -> Option<Vec<(u32, u32)>> {
    let (mut list, mut count) = ([Process::default(); 64], 64u32);
    // SAFETY: the list is as long as it is said to be.
    if unsafe { (nvml.processes)(device, &mut count, list.as_mut_ptr()) } != 0 {
        return None;
    }
    let own = std::process::id();
    let running = &list[..(count as usize).min(64)];
    // We compute here ourselves: where we are not among those listed, the numbers are not ours to compare.
    if !running.iter().any(|p| p.pid == own) {
        return None;
    }
    let (mut samples, mut count) = ([Sample::default(); 256], 256u32);
    let second_ago =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?.as_micros() as u64 - 1_000_000;
    // SAFETY: the list is as long as it is said to be. Without samples the library answers with an error: nobody was
    // busy.
    let message = unsafe { (nvml.usage)(device, samples.as_mut_ptr(), &mut count, second_ago) } == 0;
    let samples = if message { &samples[..(count as usize).min(256)] } else { &[] };
    let ours = |pid: u32| pid == own || parent(pid) == Some(own);
    Some(samples.iter().filter(|s| !ours(s.pid)).map(|s| (s.pid, s.multiprocessors)).collect())
}

/// The parent of a process: our own workers are no others.
fn parent(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_not_read() {
        let nowhere = Chip { bus: "ffff:ff:1f.0".into(), ..Chip::h200() };
        assert!(read(&nowhere).is_none() && joules(&nowhere).is_none());
    }

    #[test]
    fn a_busy_neighbour_disturbs_and_an_idle_one_does_not() {
        let with = |others| Readings { others, ..Readings::default() }.contended();
        assert!(with(Some(vec![(1, 0), (2, 60)])));
        assert!(!with(Some(vec![(1, 0)])) && !with(None));
    }

    #[test]
    fn our_own_children_are_known_as_ours() {
        let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        assert_eq!(parent(child.id()), Some(std::process::id()));
        let _ = child.kill();
        let _ = child.wait();
    }
}
