//! The type-erased door: an operation by its name, for programs that learn at run time what they are asked for.
//!
//! [`operations`] is the registry of `warplap-ops`, its types forgotten: an operation added there is behind this door.

mod check;
mod device;
mod prove;

pub use check::{Checked, Claim, check, claims};
#[cfg(feature = "cuda")]
pub(crate) use device::cuda;
pub use device::{AnyDevice, Kind, Wanted, kinds};
pub use prove::{OpenTuner, ProvedAll, as_raced, prove, prove_with};
pub use warplap_core::engine::{AnyTuner, StoredAnswer, VariantStatus};

use std::sync::OnceLock;

use warplap_core::bucket::Bucket;
use warplap_core::key::Key;
use warplap_core::problem::{Problem, ProblemError};
use warplap_core::settings::Settings;
use warplap_core::store::{Store, hold_problems_to_keys};
#[cfg(any(feature = "cpu", feature = "cuda"))]
use warplap_core::{catalog::Raced, engine::Tuner};
#[cfg(feature = "cpu")]
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::{Cuda, Ground};
use warplap_ops::registry::{self, Known, Visitor};

type Open = fn(&AnyDevice, Store, Settings) -> Box<dyn AnyTuner>;

/// An operation by name.
pub struct Operation {
    /// Its name in problem texts.
    pub name: &'static str,
    /// Other names that are understood.
    pub aliases: &'static [&'static str],
    /// A problem to begin with.
    pub example: &'static str,
    /// Problems that are tuned when nobody asks for others, by device kind.
    pub suites: &'static [(&'static str, &'static str)],
    read: fn(&str) -> Result<String, ProblemError>,
    key_fields: fn(&str, &Bucket) -> Result<String, ProblemError>,
    open: Open,
    #[cfg(feature = "cuda")]
    ground: fn() -> Ground,
}

/// The operations there are, in the order they are shown.
pub fn operations() -> &'static [Operation] {
    static OPERATIONS: OnceLock<Vec<Operation>> = OnceLock::new();
    OPERATIONS.get_or_init(|| {
        let mut all = All(Vec::new());
        registry::each(&mut all);
        hold_problems_to_keys(has_key);
        all.0
    })
}

struct All(Vec<Operation>);

impl Visitor for All {
    fn visit<O: Known>(&mut self) {
        self.0.push(Operation {
            name: O::NAME,
            aliases: O::ALIASES,
            example: O::EXAMPLE,
            suites: O::SUITES,
            read: |fields| O::parse(fields).map(|problem| O::text(&problem)),
            key_fields: |text, bucket| Ok(O::parse(text)?.key_fields(bucket).to_string()),
            open: open::<O>,
            #[cfg(feature = "cuda")]
            ground: || Ground::of(<O as Raced<Cuda>>::catalog),
        });
    }
}

fn open<O: Known>(device: &AnyDevice, store: Store, settings: Settings) -> Box<dyn AnyTuner> {
    match device {
        #[cfg(feature = "cpu")]
        AnyDevice::Cpu(cpu) => Box::new(Tuner::new(cpu.clone(), <O as Raced<Cpu>>::catalog(), store, settings)),
        #[cfg(feature = "cuda")]
        AnyDevice::Cuda(cuda) => Box::new(Tuner::new(cuda.clone(), <O as Raced<Cuda>>::catalog(), store, settings)),
    }
}

impl Operation {
    /// What a worker process proves candidates of it on.
    #[cfg(feature = "cuda")]
    pub(crate) fn ground(&self) -> Ground {
        (self.ground)()
    }

    /// A tuner for it on a device.
    pub fn open(&self, device: &AnyDevice, store: Store, settings: Settings) -> Box<dyn AnyTuner> {
        (self.open)(device, store, settings)
    }

    /// Reads a problem's fields, without the operation's name, and gives the problem in its one text form.
    pub fn read(&self, fields: &str) -> Result<String, ProblemError> {
        (self.read)(fields)
    }

    /// Its part of the suite for a kind of device.
    pub fn suite(&self, kind: &str) -> &'static str {
        self.suites.iter().find(|(k, _)| *k == kind).map_or("", |(_, text)| text)
    }
}

/// Whether a problem has a key, as far as its operation and rounding are known here.
fn has_key(problem: &str, key: &Key) -> bool {
    let operation = operations().iter().find(|op| op.name == key.op);
    let (Some(operation), Ok(bucket)) = (operation, Bucket::named(&key.bucket)) else { return true };
    (operation.key_fields)(problem, &bucket).is_ok_and(|fields| fields == key.fields)
}

/// The operation of this name or alias.
pub fn operation(name: &str) -> Result<&'static Operation, ProblemError> {
    let name = name.trim();
    operations().iter().find(|op| op.name == name || op.aliases.contains(&name)).ok_or_else(|| {
        let known = operations().iter().map(|op| op.name).collect::<Vec<_>>().join(", ");
        ProblemError::UnknownOp { name: name.into(), known }
    })
}

/// Reads `op:field=value,…`, or fields alone where the operation is known, and gives the operation and the problem in
/// its one text form.
pub fn problem(text: &str, usual: Option<&'static Operation>) -> Result<(&'static Operation, String), ProblemError> {
    let (op, fields) = match (text.split_once(':'), usual) {
        (Some((name, fields)), _) => (operation(name)?, fields),
        (None, Some(op)) => (op, text),
        (None, None) => return Err(ProblemError::Form { text: text.into() }),
    };
    Ok((op, op.read(fields)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_reads_its_own_example_and_has_a_name_of_its_own() {
        let mut names = std::collections::HashSet::new();
        for op in operations() {
            assert_eq!(problem(op.example, None).unwrap().1, op.example);
            assert!(names.insert(op.name) && op.aliases.iter().all(|a| names.insert(a)), "{}", op.name);
        }
    }

    #[test]
    fn a_problem_has_the_key_of_its_own_and_no_other() {
        for op in operations() {
            for bucket in [Bucket::Changing, Bucket::Exact, Bucket::PowerOfTwo] {
                let fields = (op.key_fields)(op.example, &bucket).unwrap();
                let key = |name: &str| Key::of(op.name, fields.clone(), name.into(), "stream".into());
                assert!(has_key(op.example, &key(bucket.name())), "{}", op.example);
                assert!(!has_key("nonsense", &key(bucket.name())) && has_key("nonsense", &key("own")), "{}", op.name);
            }
        }
        let key = Key::of("gemm", "m=16,n=16,k=16,dtype=f32".into(), "exact".into(), "stream".into());
        assert!(!has_key("gemm:m=16,n=16,k=32,dtype=f32", &key) && !has_key(operations()[0].example, &key));
    }

    #[test]
    fn an_unknown_operation_is_answered_with_those_there_are() {
        let error = problem("gem:m=1", None).err().unwrap().to_string();
        assert!(error.contains("'gem'") && error.contains("gemm"), "{error}");
        assert!(problem("m=1", None).is_err());
        assert_eq!(problem("m=1,n=2,k=3", operation("matmul").ok()).unwrap().1, "gemm:m=1,n=2,k=3,dtype=f32");
    }
}
