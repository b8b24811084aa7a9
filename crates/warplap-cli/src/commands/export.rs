//! `warplap export`: what the store knows of a problem comes in; a C header, T4 results, a Kernel Tuner cachefile or a
//! table for vLLM goes out.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};
use warplap::core::candidate::{Outcome, Trial};
use warplap::core::objective::Objective;
use warplap::core::rejection::Rejection;
use warplap::core::space::Value as Setting;

use crate::commands::c_header;
use crate::commands::vllm::moe;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::kept::{Kept, write};
use crate::machine;
use crate::race_args::Where;

/// Arguments of `export`.
#[derive(Args)]
pub(crate) struct Export {
    /// What to write down: op:field=value,… or a spec file; for --vllm-moe the name of a tuned Triton kernel's records,
    /// or a table to be checked
    #[arg(value_name = "PROBLEM|SPEC")]
    what: String,
    #[command(flatten)]
    form: ExportForm,
    /// The file, or for --vllm-moe the folder (default: stdout)
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    place: Where,
}

/// The form of what is written.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct ExportForm {
    /// A C header: the winner's axes as #defines, one section a device
    #[arg(long)]
    header: bool,
    /// The T4 results format
    #[arg(long)]
    t4: bool,
    /// A Kernel Tuner cachefile
    #[arg(long)]
    kernel_tuner: bool,
    /// A table of vLLM's fused mixture-of-experts kernel: `E=8,N=14336` and, where they
    /// count, `dtype=fp8_w8a8`, `block_shape=128x128`, `device=NAME`, `m=FIELD`; alone, the table that is named is
    /// checked
    #[arg(long, value_name = "FIELDS", num_args = 0..=1, default_missing_value = "")]
    vllm_moe: Option<String>,
}

impl Export {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        if let Some(fields) = &self.form.vllm_moe {
            return self.vllm_moe(fields, root, console);
        }
        let kept = Kept::find(&self.what, &self.place, root)?;
        let text = match (self.form.header, self.form.t4) {
            (true, _) => c_header::header(&kept)?,
            (_, true) => format!("{:#}\n", t4(&kept)),
            _ => cachefile(&kept),
        };
        match &self.output {
            Some(path) => {
                write(path, text.as_bytes(), "--output")?;
                console.log(format_args!("wrote {}", path.display()));
            }
            None => console.say(text)?,
        }
        Ok(Exit::Ok)
    }
}

impl Export {
    /// Checks a table, or writes one under the name vLLM looks for.
    fn vllm_moe(&self, fields: &str, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let file = Path::new(&self.what);
        if fields.is_empty() || file.extension().is_some_and(|e| e == "json") {
            console.say(format!("{}\n", moe::check_file(file)?))?;
            return Ok(Exit::Ok);
        }
        let table = moe::MoeTable::read(fields)?;
        let (name, text) = table.collect(&self.what, &machine::kept(root, false)?)?;
        let Some(folder) = &self.output else {
            console.say(text)?;
            return Ok(Exit::Ok);
        };
        let refused = |e: std::io::Error| {
            Failure::input(format!("--output {}: {e}: expected a folder that can be written", folder.display()))
        };
        std::fs::create_dir_all(folder).map_err(refused)?;
        write(&folder.join(&name), text.as_bytes(), "--output")?;
        console.log(format_args!("wrote {}", folder.join(&name).display()));
        Ok(Exit::Ok)
    }
}

/// The trials of the variant that has axes: other formats know one kernel.
fn trials(kept: &Kept) -> (&str, Vec<&Trial>) {
    let variant =
        kept.variants.iter().filter(|v| !v.axes.is_empty()).find(|v| v.id == kept.edition.verdict.winner.variant);
    let variant = variant.or_else(|| kept.variants.iter().max_by_key(|v| v.axes.len()));
    let id = variant.map_or(kept.edition.verdict.winner.variant.as_str(), |v| v.id.as_str());
    (id, kept.edition.trials.iter().filter(|t| t.candidate.variant == id).collect())
}

fn milliseconds(trial: &Trial) -> Option<Vec<f64>> {
    Some(trial.measurement()?.samples_us.iter().map(|us| us / 1e3).collect())
}

fn t4(kept: &Kept) -> Value {
    let result = |trial: &&Trial| {
        let invalidity = match &trial.outcome {
            Outcome::Measured(_) | Outcome::Rejected(Rejection::Outpaced { .. }) => "correct",
            Outcome::Rejected(Rejection::DoesNotBuild { .. }) => "compile",
            Outcome::Rejected(Rejection::WrongAnswer { .. }) => "correctness",
            Outcome::Rejected(Rejection::TimedOut { .. }) => "timeout",
            Outcome::Rejected(Rejection::OverLimits { .. }) => "constraints",
            Outcome::Rejected(_) => "runtime",
        };
        let time = trial.median_us().map(|us| us / 1e3);
        let measured = time.map(|ms| json!({"name": "time", "value": ms, "unit": "ms"}));
        let cost = trial.measurement().and_then(|m| m.cost.as_ref());
        let joules = cost.and_then(|c| c.joules).map(|j| json!({"name": "energy", "value": j, "unit": "J"}));
        let raced =
            cost.map(|c| json!({"name": kept.objective.name(), "value": kept.objective.value(c.median), "unit": ""}));
        let raced = raced.filter(|_| kept.objective.name() != "energy");
        json!({
            "configuration": trial.candidate.config,
            "objectives": [kept.objective.name()],
            "times": {"runtimes": milliseconds(trial).unwrap_or_default()},
            "invalidity": invalidity,
            "correctness": u8::from(trial.is_right()),
            "measurements": measured.into_iter().chain(joules).chain(raced).collect::<Vec<_>>(),
        })
    };
    json!({"schema_version": "1.0.0", "results": trials(kept).1.iter().map(result).collect::<Vec<_>>()})
}

/// As Kernel Tuner itself writes it, which reads a file only when its configs come last, one a line, and when the
/// parameters stand in their order.
fn cachefile(kept: &Kept) -> String {
    let (id, trials) = trials(kept);
    let axes: Vec<&(String, Vec<String>)> = kept.variants.iter().filter(|v| v.id == id).flat_map(|v| &v.axes).collect();
    let names: Vec<&String> = axes.iter().map(|(name, _)| name).collect();
    let values = names.iter().map(|name| {
        let mut seen: Vec<&Setting> = trials.iter().filter_map(|t| t.candidate.config.get(name)).collect();
        seen.sort();
        seen.dedup();
        format!("{}: {}", json!(name), json!(seen))
    });
    let values = values.collect::<Vec<_>>().join(", ");
    let rows: Vec<String> = trials.iter().map(|trial| cached(trial, &names, &kept.objective)).collect();
    format!(
        "{{\n\"device_name\": {},\n\"kernel_name\": {},\n\"tune_params_keys\": {},\n\"tune_params\": {{{values}}},\n\
         \"objective\": {},\n\"cache\": {{\n{}\n}}\n}}",
        json!(kept.device),
        json!(id),
        json!(names),
        json!(kept.objective.name()),
        rows.join(",\n"),
    )
}

/// One trial as a line of a cachefile.
fn cached(trial: &Trial, names: &[&String], objective: &Objective) -> String {
    let setting = |name: &&String| trial.candidate.config.get(name).map(ToString::to_string).unwrap_or_default();
    let key = names.iter().map(setting).collect::<Vec<_>>().join(",");
    let mut entry: Map<String, Value> =
        trial.candidate.config.0.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let time = match (&trial.outcome, trial.median_us()) {
        (_, Some(us)) => json!(us / 1e3),
        (Outcome::Rejected(Rejection::DoesNotBuild { .. }), _) => json!("CompilationFailedConfig"),
        _ => json!("RuntimeFailedConfig"),
    };
    if let Some(cost) = trial.measurement().and_then(|m| m.cost.as_ref()) {
        entry.insert(objective.name().into(), json!(objective.value(cost.median)));
        entry.extend(cost.joules.map(|j| ("energy".to_string(), json!(j))));
    } else if !objective.is_time() {
        // A failure stands where the objective is read.
        entry.insert(objective.name().into(), time.clone());
    }
    entry.insert("time".into(), time);
    // What a trial cost is not kept; a simulation adds these up and must find them.
    for cost in ["compile_time", "verification_time", "benchmark_time"] {
        entry.insert(cost.into(), json!(0));
    }
    entry.extend(milliseconds(trial).map(|times| ("times".to_string(), json!(times))));
    format!("{}: {}", json!(key), Value::Object(entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap::core::candidate::{Candidate, SourceHash};
    use warplap::core::measure::Measurement;
    use warplap::core::space::Config;

    #[test]
    fn a_line_of_a_cachefile_has_its_key_in_the_order_of_the_parameters() {
        let config = Config::new().with("a", 1).with("b", 2);
        let candidate = Candidate { variant: "k".into(), config, source: SourceHash("s".into()) };
        let outcome = Outcome::Measured(Measurement { median_us: 2000.0, ..Measurement::default() });
        let (a, b) = ("a".to_string(), "b".to_string());
        let line = cached(&Trial::new(candidate, outcome), &[&b, &a], &Objective::default());
        assert!(line.starts_with("\"2,1\": {") && line.contains("\"time\":2.0"), "{line}");
    }
}
