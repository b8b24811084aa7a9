//! `warplap space`: axes and rules of a file come in; how many configs are legal, and some of them, go out.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use warplap::core::user_files;
use warplap::report::recorded::Recorded;
use warplap_spec::Spec;

use crate::console::{Console, DIM, HEAD, paint};
use crate::failure::{Exit, Failure};
use crate::units;

/// The most a file may hold, in bytes.
const MOST: u64 = 16 << 20;

/// Arguments of `space`.
#[derive(Args)]
pub(crate) struct Space {
    /// A spec file, or a file with `params` (name, values) and `restrictions` (expressions as Python writes them)
    #[arg(value_name = "FILE|SPEC")]
    file: PathBuf,
    /// Draw so many legal configs, each as likely as the other
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    sample: u32,
    /// The seed of the draw
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

impl Space {
    pub(crate) fn run(&self, console: &Console) -> Result<Exit, Failure> {
        let named = |e: &dyn std::fmt::Display| Failure::input(format!("{}: {e}", self.file.display()));
        let expected = "expected a text file of axes and rules";
        let text = user_files::text(&self.file, MOST).map_err(|e| named(&format!("{e}: {expected}")))?;
        let started = Instant::now();
        // Both kinds may be JSON: Kernel Tuner's T1 has its axes in a part of that name.
        let space = match self.file.extension().is_some_and(|e| e == "toml") || text.contains("\"ConfigurationSpace\"")
        {
            true => Spec::load(&self.file).map_err(Failure::input)?.space.clone(),
            false => Recorded::definition(&text).map_err(|e| named(&e))?,
        };
        space.check().map_err(|e| named(&e))?;
        let count = space.count();
        let seconds = started.elapsed().as_secs_f64();
        let cartesian: f64 = space.axes().iter().map(|a| a.values().len() as f64).product();
        let nodes = space.diagram().map_or(0, |d| d.nodes());
        let mut rng = warplap::core::space::sampler(self.seed);
        let drawn: Vec<_> = (0..self.sample).filter_map(|_| space.sample(&mut rng)).collect();
        if console.json {
            let count = u64::try_from(count).map_or_else(|_| json!(count.to_string()), |n| json!(n));
            console.line(&json!({"legal": count, "cartesian": cartesian, "nodes": nodes, "seconds": seconds}))?;
            console.lines(drawn.iter().map(|config| json!({"config": config})))?;
        } else {
            let legal = u64::try_from(count).map_or_else(|_| count.to_string(), units::count);
            console.say(format!(
                "{} legal configs of {cartesian:.3e}  {}",
                paint(HEAD, legal),
                paint(
                    DIM,
                    format!(
                        "{} axes, {} rules, {nodes} nodes, {:.1} ms",
                        space.axes().len(),
                        space.rules().len(),
                        seconds * 1e3
                    )
                ),
            ))?;
            for config in drawn {
                console.say(config)?;
            }
        }
        Ok(Exit::Ok)
    }
}
