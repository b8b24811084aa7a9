//! A device by its name, for programs that learn at run time where they shall race. [`kinds`] is the one list of
//! devices there are: reading a name, opening one, counting them go by it.

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
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;

/// A kind of device: how many of it this machine has, and how one is opened.
pub struct Kind {
    /// One word: `cpu`, `cuda`.
    pub word: &'static str,
    /// Whether there may be several, told apart by a number.
    pub numbered: bool,
    count: fn() -> Result<i32, Error>,
    open: fn(i32, Option<&Path>) -> Result<AnyDevice, Error>,
}

impl Kind {
    /// How many there are; an error says in one sentence why none can be used.
    pub fn count(&self) -> Result<i32, Error> {
        (self.count)()
    }
}

/// The kinds there are in this program, the one to be preferred first.
pub fn kinds() -> &'static [Kind] {
    &[
        #[cfg(feature = "cuda")]
        Kind {
            word: Cuda::KIND,
            numbered: true,
            count: || Ok(Cuda::count()?),
            open: |number, directory| Ok(AnyDevice::Cuda(cuda(number, directory)?)),
        },
        #[cfg(feature = "cpu")]
        Kind {
            word: Cpu::KIND,
            numbered: false,
            count: || Ok(1),
            open: |_, _| Ok(AnyDevice::Cpu(Arc::new(Cpu::new()))),
        },
    ]
}

/// Opens an NVIDIA GPU that keeps compiled kernels in a directory.
#[cfg(feature = "cuda")]
pub(crate) fn cuda(ordinal: i32, directory: Option<&Path>) -> Result<Arc<Cuda>, Error> {
    let device = Cuda::open(ordinal)?;
    Ok(Arc::new(if let Some(path) = directory { device.with_artifacts(path) } else { device }))
}

/// Which device is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The first of the kinds there is one of.
    #[default]
    Best,
    /// One of a kind, by its word and number.
    Named(&'static str, i32),
}

impl Wanted {
    /// The CPU.
    pub const CPU: Wanted = Wanted::Named("cpu", 0);

    /// An NVIDIA GPU, by its ordinal.
    pub const fn cuda(ordinal: i32) -> Self {
        Wanted::Named("cuda", ordinal)
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, number) = text.split_once(':').map_or((text, None), |(word, number)| (word, Some(number)));
        let kind = kinds().iter().find(|kind| kind.word == word && (kind.numbered || number.is_none()));
        let named = match (kind, number) {
            (None, None) if word == "auto" => Some(Wanted::Best),
            (Some(kind), None) => Some(Wanted::Named(kind.word, 0)),
            (Some(kind), Some(n)) => n.parse::<u16>().ok().map(|n| Wanted::Named(kind.word, n.into())),
            (None, _) => None,
        };
        named.ok_or_else(|| {
            let name = |kind: &Kind| match kind.numbered {
                true => format!("{0} or {0}:N", kind.word),
                false => kind.word.to_string(),
            };
            format!("expected auto, {}", kinds().iter().rev().map(name).collect::<Vec<_>>().join(", "))
        })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Best => f.write_str("auto"),
            Wanted::Named(word, number) => match kinds().iter().any(|kind| kind.word == *word && kind.numbered) {
                true => write!(f, "{word}:{number}"),
                false => f.write_str(word),
            },
        }
    }
}

/// One of the devices there are.
#[derive(Clone)]
pub enum AnyDevice {
    /// The CPU.
    #[cfg(feature = "cpu")]
    Cpu(Arc<Cpu>),
    /// An NVIDIA GPU.
    #[cfg(feature = "cuda")]
    Cuda(Arc<Cuda>),
}

/// Does the same with a device of any kind.
macro_rules! with {
    ($device:expr, $it:ident => $body:expr) => {
        match $device {
            #[cfg(feature = "cpu")]
            AnyDevice::Cpu($it) => $body,
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda($it) => $body,
        }
    };
}

impl AnyDevice {
    /// Opens a device. Compiled kernels are kept in the directory of the store, where there is one. One asked for by
    /// name that cannot be opened is an error; with [`Wanted::Best`] the next kind answers.
    pub fn open(wanted: Wanted, directory: Option<&Path>) -> Result<Self, Error> {
        let none = |what: &str| Error::Device(format!("this program is built without {what}"));
        match wanted {
            Wanted::Named(word, number) => {
                let kind = kinds().iter().find(|kind| kind.word == word).ok_or_else(|| none(word))?;
                (kind.open)(number, directory)
            }
            Wanted::Best => {
                let opened = |kind: &Kind| {
                    (kind.open)(0, directory)
                        .inspect_err(|why| tracing::debug!("{} is not used: {why}", kind.word))
                        .ok()
                };
                kinds().iter().find_map(opened).ok_or_else(|| none("a device that is here"))
            }
        }
    }

    /// One word: `cpu`, `cuda`.
    pub fn kind(&self) -> &'static str {
        fn word<D: Device>(_: &D) -> &'static str {
            D::KIND
        }
        with!(self, device => word(&**device))
    }

    /// How it measures unless somebody says otherwise.
    pub fn usual_policy(&self) -> Policy {
        fn policy<D: Device>(_: &D) -> Policy {
            D::usual_policy()
        }
        with!(self, device => policy(&**device))
    }

    /// Who it is.
    pub fn fingerprint(&self) -> &Fingerprint {
        with!(self, device => device.fingerprint())
    }

    /// Joules it has drawn since some moment in the past, where it tells.
    pub fn joules(&self) -> Option<f64> {
        with!(self, device => device.joules())
    }

    /// What it can do at best; measured now where nobody has yet.
    pub fn measured_ceilings(&self, store: &Store) -> Option<Arc<Ceilings>> {
        fn of(device: &impl Device, store: &Store) -> Option<Arc<Ceilings>> {
            device.get_ready(store, f64::INFINITY);
            device.ceilings()
        }
        with!(self, device => of(&**device, store))
    }
}

#[cfg(all(test, feature = "cpu", feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_as_it_is_read() {
        for text in ["auto", "cpu", "cuda:0", "cuda:7"] {
            assert_eq!(text.parse::<Wanted>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(Wanted::cuda(0)));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0"] {
            assert!(text.parse::<Wanted>().unwrap_err().contains("expected"), "{text}");
        }
    }

    #[test]
    fn there_is_always_a_best_device_and_no_gpu_of_a_silly_number() {
        assert!(["cpu", "cuda"].contains(&AnyDevice::open(Wanted::Best, None).unwrap().kind()));
        let error = AnyDevice::open(Wanted::cuda(9999), None).err().unwrap().to_string();
        assert!(!error.contains('\n'), "{error}");
    }
}
