//! `warplap devices`: what there is to race on, and what it can do at best.

use std::path::Path;

use serde_json::{Value, json};
use warplap::core::device::Device;
use warplap::core::roofline::Ceilings;

use crate::console::{Console, DIM, HEAD, paint};
use crate::failure::{Exit, Failure};
use crate::machine::Machine;
use crate::units;

/// What is said where a GPU might be.
pub(crate) const NO_CUDA: &str = "no CUDA device support in this build; the CPU is used";

pub(crate) fn run(root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
    let machine = Machine::open_to_read(root);
    let cpu = &machine.device;
    let slug = cpu.fingerprint().slug();
    let note = machine.store.note(&slug, "ceilings");
    let ceilings: Option<Ceilings> = note.clone().and_then(|note| serde_json::from_value(note).ok());
    if console.json {
        return console
            .line(&json!({
                "device": "cpu",
                "slug": slug,
                "model": cpu.chip().model,
                "threads": cpu.threads(),
                "isa": cpu.isa().name(),
                "caches": cpu.chip().caches,
                "memory": cpu.chip().memory,
                "hard": cpu.fingerprint().hard,
                "soft": cpu.fingerprint().soft,
                "ceilings": ceilings.is_some().then_some(note).flatten().unwrap_or(Value::Null),
                "cuda": NO_CUDA,
            }))
            .map(|()| Exit::Ok);
    }
    let fact = |name: &str, text: String| format!("  {} {text}\n", paint(DIM, format!("{name:<9}")));
    let caches: Vec<String> = cpu.chip().caches.iter().map(|c| units::bytes(*c)).collect();
    let soft: Vec<String> = cpu.fingerprint().soft.iter().map(|(k, v)| format!("{k} {v}")).collect();
    let mut page = format!("{}  {}\n", paint(HEAD, "cpu"), cpu.chip().model);
    page.push_str(&fact("threads", format!("{}, {} lanes", cpu.threads(), cpu.isa().name())));
    page.push_str(&fact("caches", caches.join(", ")));
    page.push_str(&fact("memory", units::bytes(cpu.chip().memory)));
    page.push_str(&fact("ceilings", ceilings.as_ref().map_or("not measured yet (the first tune does)".into(), shown)));
    page.push_str(&fact("versions", soft.join(", ")));
    page.push_str(&fact("folder", slug));
    page.push_str(&format!("{}  {}\n", paint(DIM, "cuda"), paint(DIM, NO_CUDA)));
    console.say(page)?;
    Ok(Exit::Ok)
}

/// Ceilings in one line.
pub(crate) fn shown(c: &Ceilings) -> String {
    let flops: Vec<String> = c.flops.iter().map(|(dtype, rate)| format!("{dtype} {}", units::rate(*rate))).collect();
    let bandwidth: Vec<String> = c.bandwidth.iter().map(|b| format!("{:.0}", b.rate / 1e9)).collect();
    format!("{}; {} GB/s from nearest cache to memory", flops.join(", "), bandwidth.join(" / "))
}
