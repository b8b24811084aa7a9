//! `warplap vllm …`: tunes for vLLM ahead of time. Arguments come in; they are handed to `python -m warplap.vllm`, whose
//! exit code goes out.

pub(crate) mod moe;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use warplap::core::environment;

use crate::console::Console;
use crate::failure::{Exit, Failure};

/// Ends with 0 where the package is there, without loading it.
const IS_THERE: &str = "import importlib.util, sys; sys.exit(importlib.util.find_spec('warplap') is None)";
const REMEDY: &str = "expected a Python that has the packages warplap and vllm (pip install warplap vllm): \
                      WARPLAP_PYTHON names another one";

/// Arguments of `vllm`.
#[derive(Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct Vllm {
    /// tune MODEL writes tables of fused experts, check FOLDER measures them; --help says more
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    arguments: Vec<OsString>,
}

impl Vllm {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let python = environment::var("WARPLAP_PYTHON").unwrap_or_else(|| "python3".into());
        let named = |why: String| Failure::NoAnswer(format!("{}: {why}: {REMEDY}", Path::new(&python).display()));
        let silent = Command::new(&python).args(["-c", IS_THERE]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !silent.map_err(|e| named(format!("cannot be started: {e}")))?.success() {
            return Err(named("has no package warplap".into()));
        }
        let mut program = Command::new(&python);
        program.args(["-m", "warplap.vllm"]).args(&self.arguments);
        if console.json && !self.arguments.iter().any(|a| a == "--json") {
            program.arg("--json");
        }
        if let Some(root) = root {
            program.env("WARPLAP_STORE", root);
        }
        let ended = program.status().map_err(|e| named(format!("cannot be started: {e}")))?;
        Ok(match ended.code() {
            Some(0) => Exit::Ok,
            Some(2) => Exit::BadInput,
            Some(130) | None => Exit::Interrupted,
            Some(_) => Exit::NoAnswer,
        })
    }
}
