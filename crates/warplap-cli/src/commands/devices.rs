//! `warplap devices`: what there is to race on, and what it can do at best.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use warplap::any::{AnyDevice, Wanted};
use warplap::core::roofline::Ceilings;
use warplap::core::store::Store;
use warplap::cpu::blas;
use warplap::{Cpu, Cuda};

use crate::console::{Console, DIM, HEAD, paint};
use crate::failure::{Exit, Failure};
use crate::machine::Machine;
use crate::units;

/// A device's facts: its name, what it is called, and lines of name and text.
struct Page {
    name: String,
    model: String,
    facts: Vec<(&'static str, String)>,
    json: Value,
}

pub(crate) fn run(root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
    let machine = Machine::open_to_read(root, Wanted::CPU)?;
    let store = &machine.store;
    let mut pages = Vec::new();
    if let AnyDevice::Cpu(device) = &machine.device {
        pages.push(cpu(device, &machine.device, store));
    }
    let gpus = Cuda::count();
    for ordinal in 0..*gpus.as_ref().unwrap_or(&0) {
        pages.push(match Cuda::open(ordinal) {
            Ok(device) => cuda(ordinal, device, store),
            Err(error) => {
                let (name, model) = (format!("cuda:{ordinal}"), error.to_string());
                let json = json!({"device": name, "error": model});
                Page { name, model, facts: Vec::new(), json }
            }
        });
    }
    let none = gpus.err().map(|error| error.to_string());
    for page in &mut pages {
        if console.json {
            if let (Some(none), "cpu") = (&none, page.name.as_str()) {
                page.json["cuda"] = none.as_str().into();
            }
            console.line(&page.json)?;
            continue;
        }
        let mut text = format!("{}  {}\n", paint(HEAD, &page.name), page.model);
        for (name, fact) in &page.facts {
            text.push_str(&format!("  {} {fact}\n", paint(DIM, format!("{name:<9}"))));
        }
        console.say(text)?;
    }
    if let (Some(none), false) = (none, console.json) {
        console.say(format!("{}  {}\n", paint(DIM, "cuda"), paint(DIM, format!("{none}; the CPU is used"))))?;
    }
    Ok(Exit::Ok)
}

fn cpu(cpu: &Cpu, device: &AnyDevice, store: &Store) -> Page {
    let caches: Vec<String> = cpu.chip().caches.iter().map(|c| units::bytes(*c)).collect();
    let mut facts = vec![
        ("threads", format!("{}, {} lanes", cpu.threads(), cpu.isa().name())),
        ("caches", caches.join(", ")),
        ("memory", units::bytes(cpu.chip().memory)),
    ];
    let libraries = blas::installed().libraries();
    let shown = |l: &blas::Seen| format!("{} ({})", l.maker().word(), l.path().display());
    let blas: Vec<String> = libraries.iter().map(shown).collect();
    facts.push(("blas", if blas.is_empty() { "none (warplap doctor says why)".into() } else { blas.join(", ") }));
    let mut json = json!({
        "blas": libraries.iter().map(|l| json!({"library": l.maker().word(), "path": l.path()})).collect::<Vec<_>>(),
        "device": "cpu",
        "model": cpu.chip().model,
        "threads": cpu.threads(),
        "isa": cpu.isa().name(),
        "caches": cpu.chip().caches,
        "memory": cpu.chip().memory,
    });
    shared(device, store, &mut facts, &mut json);
    Page { name: "cpu".into(), model: cpu.chip().model.clone(), facts, json }
}

fn cuda(ordinal: i32, device: Cuda, store: &Store) -> Page {
    let (chip, name) = (device.chip().clone(), format!("cuda:{ordinal}"));
    let compiler = device.compiler().map(|c| format!("NVRTC {}.{}", c.version().0, c.version().1));
    let readings = device.readings();
    let capability = format!("{}.{}", chip.capability.0, chip.capability.1);
    let mut facts = vec![
        ("chip", format!("{} multiprocessors, capability {capability}, {}", chip.multiprocessors, chip.arch())),
        ("memory", format!("{}, {} of L2", units::bytes(chip.memory), units::bytes(chip.l2))),
        ("compiler", compiler.clone().unwrap_or_else(|e| e.to_string())),
    ];
    if let Some(now) = &readings {
        facts.push(("now", said(now)));
    }
    let mut json = json!({
        "device": name,
        "model": chip.name,
        "capability": capability,
        "multiprocessors": chip.multiprocessors,
        "memory": chip.memory,
        "l2": chip.l2,
        "compiler": compiler.map_err(|e| e.to_string()),
        "clock_mhz": readings.as_ref().and_then(|r| r.clock_mhz),
        "held_by": readings.as_ref().map(|r| &r.held_by),
    });
    shared(&AnyDevice::Cuda(Arc::new(device)), store, &mut facts, &mut json);
    Page { name, model: chip.name, facts, json }
}

/// What is said of every device: ceilings, versions, folder.
fn shared(device: &AnyDevice, store: &Store, facts: &mut Vec<(&'static str, String)>, json: &mut Value) {
    let (print, slug) = (device.fingerprint(), device.fingerprint().slug());
    let note = store.note(&slug, "ceilings");
    let ceilings: Option<Ceilings> = note.clone().and_then(|note| serde_json::from_value(note).ok());
    json["ceilings"] = ceilings.is_some().then_some(note).flatten().unwrap_or(Value::Null);
    json["slug"] = slug.as_str().into();
    json["hard"] = json!(print.hard);
    json["soft"] = json!(print.versions());
    facts.push(("ceilings", ceilings.as_ref().map_or("not measured yet (the first tune does)".into(), shown)));
    let soft: Vec<String> = print.soft.iter().map(|(k, v)| format!("{k} {v}")).collect();
    facts.push(("versions", soft.join(", ")));
    facts.push(("folder", slug));
}

/// Ceilings in one line.
pub(crate) fn shown(c: &Ceilings) -> String {
    let mut flops: Vec<String> =
        c.flops.iter().map(|(dtype, rate)| format!("{dtype} {}", units::rate(*rate))).collect();
    flops.extend(c.tf32.map(|rate| format!("tf32 {}", units::rate(rate))));
    let bandwidth: Vec<String> = c.bandwidth.iter().map(|b| format!("{:.0}", b.rate / 1e9)).collect();
    format!("{}; {} GB/s from nearest cache to memory", flops.join(", "), bandwidth.join(" / "))
}

/// A GPU's readings in one line.
pub(crate) fn said(now: &warplap::cuda::Readings) -> String {
    let mut parts = Vec::new();
    if let Some(clock) = now.clock_mhz {
        parts.push(now.most_mhz.map_or(format!("{clock} MHz"), |most| format!("{clock} of {most} MHz")));
    }
    parts.extend(now.temperature.map(|t| format!("{t} °C")));
    parts.extend(now.watts.map(|w| format!("{w:.0} W")));
    if !now.held_by.is_empty() {
        parts.push(format!("held down by {}", now.held_by.join(", ")));
    }
    match &now.others {
        Some(others) if now.contended() => parts.push(format!("{} others compute here", others.len())),
        Some(_) => parts.push("nobody else computes here".into()),
        None => {}
    }
    parts.join(", ")
}
