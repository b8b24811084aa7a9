//! A device by its name, for programs that learn at run time where they shall race.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use warplap_core::device::Device;
use warplap_core::error::Error;
use warplap_core::fingerprint::Fingerprint;
use warplap_core::measure::Policy;
use warplap_core::roofline::Ceilings;
use warplap_core::store::Store;
use warplap_cpu::Cpu;
use warplap_cuda::Cuda;

/// Which device is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The first NVIDIA GPU where there is one, else the CPU.
    #[default]
    Best,
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU, by its ordinal.
    Cuda(i32),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected auto, cpu, cuda or cuda:N".to_string();
        match text.split_once(':') {
            None => match text {
                "auto" => Ok(Wanted::Best),
                "cpu" => Ok(Wanted::Cpu),
                "cuda" => Ok(Wanted::Cuda(0)),
                _ => Err(expected()),
            },
            Some(("cuda", n)) => n.parse::<u16>().map(|n| Wanted::Cuda(n.into())).map_err(|_| expected()),
            Some(_) => Err(expected()),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Best => f.write_str("auto"),
            Wanted::Cpu => f.write_str("cpu"),
            Wanted::Cuda(n) => write!(f, "cuda:{n}"),
        }
    }
}

/// One of the devices there are.
#[derive(Clone)]
pub enum AnyDevice {
    /// The CPU.
    Cpu(Arc<Cpu>),
    /// An NVIDIA GPU.
    Cuda(Arc<Cuda>),
}

impl AnyDevice {
    /// Opens a device. Compiled kernels are kept in the directory of the store, where there is one. A GPU asked for by
    /// name that cannot be opened is an error; with [`Wanted::Best`] the CPU answers.
    pub fn open(wanted: Wanted, directory: Option<&Path>) -> Result<Self, Error> {
        let cuda = |ordinal| {
            let device = Cuda::open(ordinal)?;
            let device = if let Some(path) = directory { device.with_artifacts(path) } else { device };
            Ok::<_, Error>(AnyDevice::Cuda(Arc::new(device)))
        };
        let cpu = || AnyDevice::Cpu(Arc::new(Cpu::new()));
        match wanted {
            Wanted::Cpu => Ok(cpu()),
            Wanted::Cuda(ordinal) => cuda(ordinal),
            Wanted::Best => Ok(cuda(0).unwrap_or_else(|why| {
                tracing::debug!("the CPU is used: {why}");
                cpu()
            })),
        }
    }

    /// One word: `cpu`, `cuda`.
    pub fn kind(&self) -> &'static str {
        match self {
            AnyDevice::Cpu(_) => Cpu::KIND,
            AnyDevice::Cuda(_) => Cuda::KIND,
        }
    }

    /// How it measures unless somebody says otherwise.
    pub fn usual_policy(&self) -> Policy {
        match self {
            AnyDevice::Cpu(_) => Cpu::usual_policy(),
            AnyDevice::Cuda(_) => Cuda::usual_policy(),
        }
    }

    /// Who it is.
    pub fn fingerprint(&self) -> &Fingerprint {
        match self {
            AnyDevice::Cpu(cpu) => cpu.fingerprint(),
            AnyDevice::Cuda(cuda) => cuda.fingerprint(),
        }
    }

    /// What it can do at best; measured now where nobody has yet.
    pub fn measured_ceilings(&self, store: &Store) -> Option<Arc<Ceilings>> {
        fn of(device: &impl Device, store: &Store) -> Option<Arc<Ceilings>> {
            device.get_ready(store);
            device.ceilings()
        }
        match self {
            AnyDevice::Cpu(cpu) => of(&**cpu, store),
            AnyDevice::Cuda(cuda) => of(&**cuda, store),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_as_it_is_read() {
        for text in ["auto", "cpu", "cuda:0", "cuda:7"] {
            assert_eq!(text.parse::<Wanted>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(Wanted::Cuda(0)));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0"] {
            assert!(text.parse::<Wanted>().unwrap_err().contains("expected"), "{text}");
        }
    }

    #[test]
    fn there_is_always_a_best_device_and_no_gpu_of_a_silly_number() {
        assert!(["cpu", "cuda"].contains(&AnyDevice::open(Wanted::Best, None).unwrap().kind()));
        let error = AnyDevice::open(Wanted::Cuda(9999), None).err().unwrap().to_string();
        assert!(!error.contains('\n'), "{error}");
    }
}
