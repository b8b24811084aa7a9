//! A reference in Python: inputs come in and are handed to a function as NumPy arrays in a process of its own; what it
//! returns goes out.
//!
//! The function is called with every argument that is read, by name: arrays and numbers. It returns the output, or a
//! tuple of all outputs in their order.

use std::borrow::Cow;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use warplap::core::array::Array;
use warplap::core::rejection::Rejection;
use warplap::core::space::Value;

use crate::argument::{Argument, Role};
use crate::c::child;
use crate::npy;
use crate::spec::{Code, Spec};

/// What the function may take.
const PATIENCE: Duration = Duration::from_secs(300);

const CALL: &str = r#"
import importlib.util, json, sys
folder, script, entry = sys.argv[1:]
try:
    import numpy
except ImportError as why:
    sys.exit(f"{why}: expected NumPy beside {sys.executable} (WARPLAP_PYTHON names another Python)")
spec = importlib.util.spec_from_file_location("reference", script)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
plan = json.load(open(folder + "/plan.json"))
inputs = {a["name"]: numpy.load(f"{folder}/{a['file']}") if "file" in a else a["value"] for a in plan["inputs"]}
answer = getattr(module, entry)(**inputs)
answer = answer if isinstance(answer, tuple) else (answer,)
if len(answer) != plan["outputs"]:
    sys.exit(f"{entry} returned {len(answer)} outputs: expected {plan['outputs']}")
for i, output in enumerate(answer):
    numpy.save(f"{folder}/out{i}.npy", numpy.array(output, dtype=numpy.float64, order="C"))
"#;

fn failed(what: &str, why: impl std::fmt::Display) -> Rejection {
    Rejection::LaunchFailed { reason: format!("{what}: {why}") }
}

/// What the function gives for inputs, for each argument that is written.
pub(crate) fn answer(spec: &Spec, code: &Code, inputs: &[Array]) -> Result<Vec<Vec<f64>>, Rejection> {
    let folder = warplap::core::temp_dirs::ScratchDir::new().map_err(|e| failed("no folder", e))?;
    hand_over(spec, inputs, folder.path()).map_err(|e| failed("the inputs cannot be handed over", e))?;
    let python = warplap::core::environment::text("WARPLAP_PYTHON");
    let python = python.unwrap_or_else(|| "python3".into());
    let mut command = Command::new(&python);
    command.args(["-c", CALL]).arg(folder.path()).arg(&code.path).arg(&code.entry);
    let ended = child::run(&mut command, &folder.path().join("log"), PATIENCE).map_err(|e| failed(&python, e))?;
    match ended.status {
        Some(status) if status.success() => take(spec, folder.path()),
        Some(_) => {
            // The last line of a traceback says what went wrong.
            let said = ended.said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it ended without a word");
            Err(failed(&code.path.display().to_string(), said.trim()))
        }
        None => Err(Rejection::TimedOut { seconds: PATIENCE.as_secs_f64() }),
    }
}

fn hand_over(spec: &Spec, inputs: &[Array], folder: &Path) -> std::io::Result<()> {
    let mut slots = inputs.iter();
    let mut plan = Vec::new();
    for (number, argument) in spec.arguments.iter().enumerate() {
        let drawn = if argument.role == Role::Constant { None } else { slots.next() };
        let value = match &argument.value {
            Some(Value::Int(i)) => json!(i),
            Some(Value::Float(x)) => json!(x.0),
            Some(Value::Bool(b)) => json!(b),
            _ => serde_json::Value::Null,
        };
        if argument.role == Role::Scalar {
            plan.push(json!({"name": argument.name, "value": value}));
            continue;
        }
        let array = match argument.role {
            Role::Constant => Some(Cow::Owned(argument.content())),
            _ => drawn.filter(|_| argument.is_input()).map(Cow::Borrowed),
        };
        if let Some(array) = array {
            let file = format!("in{number}.npy");
            std::fs::write(folder.join(&file), npy::to_bytes(&argument.shape, &array))?;
            plan.push(json!({"name": argument.name, "file": file}));
        }
    }
    let outputs = spec.written().count();
    std::fs::write(folder.join("plan.json"), json!({"inputs": plan, "outputs": outputs}).to_string())
}

fn take(spec: &Spec, folder: &Path) -> Result<Vec<Vec<f64>>, Rejection> {
    let taken = |(number, argument): (usize, &Argument)| {
        let what = format!("the output '{}'", argument.name);
        let bytes = std::fs::read(folder.join(format!("out{number}.npy"))).map_err(|e| failed(&what, e))?;
        let (shape, array) = npy::parse(&bytes).map_err(|e| failed(&what, e))?;
        if argument.shape != shape {
            return Err(failed(&what, format!("it has the shape {shape:?}: expected {:?}", argument.shape)));
        }
        Ok(array.to_f64())
    };
    spec.written().enumerate().map(taken).collect()
}
