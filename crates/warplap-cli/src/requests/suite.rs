//! Suites: texts of one problem a line come in; operations and problems in their one text form go out.

use std::path::Path;
use std::sync::Arc;

use warplap::Settings;
use warplap::any::{self, AnyDevice, AnyTuner, Operation, Wanted, operations};
use warplap::core::op::Op;
use warplap::core::store::Store;
use warplap::core::user_files;
use warplap_spec::{KernelFile, Language, Spec};

use crate::failure::Failure;
use crate::units;

/// The most a suite file may hold, in bytes.
const MOST: u64 = 16 << 20;

/// A problem, and whose it is.
#[derive(Clone)]
pub(crate) struct Asked {
    of: Of,
    pub(crate) problem: String,
}

/// Whose a problem is.
#[derive(Clone)]
enum Of {
    Operation(&'static Operation),
    /// A kernel of the user's own.
    Spec(Arc<Spec>),
}

impl Asked {
    /// The operation's name.
    pub(crate) fn op(&self) -> &'static str {
        match &self.of {
            Of::Operation(op) => op.name,
            Of::Spec(_) => KernelFile::NAME,
        }
    }

    /// What it is called on a page: the operation and its sizes, or the spec's name and constants.
    pub(crate) fn title(&self) -> String {
        match &self.of {
            Of::Operation(op) => format!("{} {}", op.name, units::short(&self.problem)),
            Of::Spec(spec) => {
                let constants = spec.constants.iter().map(|(name, value)| format!(" {name}={value}"));
                format!("{}{}", spec.name, constants.collect::<String>())
            }
        }
    }

    /// The spec, where it is a kernel of the user's own.
    pub(crate) fn spec(&self) -> Option<&Arc<Spec>> {
        match &self.of {
            Of::Operation(_) => None,
            Of::Spec(spec) => Some(spec),
        }
    }

    /// The device it wants: a C kernel runs on the CPU however many GPUs there are.
    pub(crate) fn wanted(&self, asked: Wanted) -> Result<Wanted, Failure> {
        let Some(spec) = self.spec() else { return Ok(asked) };
        match (spec.language, asked) {
            (Language::C, Wanted::Best | Wanted::CPU) => Ok(Wanted::CPU),
            (Language::Cuda, Wanted::Best) => Ok(Wanted::cuda(0)),
            (Language::Cuda, Wanted::Named("cuda", n)) => Ok(Wanted::cuda(n)),
            (language, asked) => {
                let expected = if language == Language::C { "cpu" } else { "cuda" };
                let (file, name) = (spec.file().display(), language.name());
                Err(Failure::input(format!("--device {asked}: {file} is in {name}: expected --device {expected}")))
            }
        }
    }

    /// A tuner for it on a device.
    pub(crate) fn open(
        &self,
        device: &AnyDevice,
        store: Store,
        settings: Settings,
    ) -> Result<Box<dyn AnyTuner>, Failure> {
        match &self.of {
            Of::Operation(op) => Ok(op.open(device, store, settings)),
            Of::Spec(spec) => spec.open(device, store, settings).map_err(Failure::input),
        }
    }
}

/// Whether a text is the path of a spec file.
fn is_path(text: &str) -> bool {
    text.ends_with(".toml") || text.ends_with(".json")
}

/// Reads one problem, or a spec file.
pub(crate) fn asked(text: &str, usual: Option<&'static Operation>) -> Result<Asked, Failure> {
    let own = text.strip_prefix(KernelFile::NAME).is_some_and(|rest| rest.starts_with(':'));
    let spec = match (own, is_path(text)) {
        (true, _) => Some(KernelFile::parse(text)?.spec().clone()),
        (false, true) => Some(Spec::load(Path::new(text)).map_err(Failure::input)?),
        (false, false) => None,
    };
    if let Some(spec) = spec {
        return Ok(Asked { problem: spec.problem(), of: Of::Spec(spec) });
    }
    let (op, problem) = any::problem(text, usual).map_err(|e| match text.split_once(':') {
        // The sentence stands alone where the problem is one of many.
        Some(_) => Failure::input(format!("{text}: {e}")),
        None => Failure::input(e),
    })?;
    Ok(Asked { of: Of::Operation(op), problem })
}

/// Reads an operation's name.
pub(crate) fn operation(name: Option<&str>) -> Result<Option<&'static Operation>, Failure> {
    name.map(any::operation).transpose().map_err(|e| Failure::input(format!("--op: {e}")))
}

/// The suite for those who ask for nothing else, of one operation or of all, for a kind of device.
pub(crate) fn default(op: Option<&'static Operation>, kind: &str) -> Result<Vec<Asked>, Failure> {
    let wanted = operations().iter().filter(|o| op.is_none_or(|wanted| wanted.name == o.name));
    wanted.flat_map(|o| lines(o.suite(kind))).map(|(_, line)| asked(line, None)).collect()
}

/// The part of the suite of all that is decided within a minute: a third of each operation's problems, those that come
/// first, and no gradients.
pub(crate) fn first(kind: &str) -> Result<Vec<Asked>, Failure> {
    let wanted = operations().iter().filter(|op| !op.name.ends_with("_grad"));
    let third = |op: &Operation| lines(op.suite(kind)).count().div_ceil(3);
    wanted.flat_map(|op| lines(op.suite(kind)).take(third(op))).map(|(_, line)| asked(line, None)).collect()
}

/// A user's suite.
pub(crate) fn read(path: &Path, usual: Option<&'static Operation>) -> Result<Vec<Asked>, Failure> {
    let named = |why: String| Failure::input(format!("--suite {}: {why}", path.display()));
    let expected = "expected a text file with one problem a line";
    let text = user_files::text(path, MOST).map_err(|e| named(format!("{e}: {expected}")))?;
    lines(&text).map(|(n, line)| asked(line, usual).map_err(|e| named(format!("line {n}: {e}")))).collect()
}

/// The lines that hold a problem, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(n, line)| (n + 1, line.split('#').next().unwrap_or_default().trim()))
        .filter(|(_, line)| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_suite_is_sound_for_every_operation_there_is() {
        for kind in ["cpu", "cuda"] {
            let all = default(None, kind).unwrap();
            for op in operations() {
                assert!(all.iter().any(|a| a.op() == op.name), "{kind}: {}", op.name);
            }
            let first: Vec<_> = first(kind).unwrap().into_iter().map(|asked| asked.problem).collect();
            assert!((10..=all.len() / 2).contains(&first.len()), "{kind}: {first:?}");
            assert!(first.iter().all(|problem| all.iter().any(|asked| asked.problem == *problem)), "{first:?}");
            // What is written there is what is shown: the one text form.
            let text: String = operations().iter().map(|op| op.suite(kind)).collect();
            for asked in &all {
                assert!(text.contains(&asked.problem), "{}", asked.problem);
            }
        }
    }

    #[test]
    fn comments_and_empty_lines_are_no_problems() {
        assert_eq!(lines("# a\n\n gemm:m=1 # b\n").collect::<Vec<_>>(), [(3, "gemm:m=1")]);
    }
}
