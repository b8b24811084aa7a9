//! What a dispatch hit costs in CubeCL's tuner and in warplap, in one run: `cargo run --release`, `--json` for machines.
//!
//! Windows of both alternate, so that whatever else the machine does strikes both. The shortest window is the cost
//! itself, the median what one meets. `--stores DIR` also opens stores of 10,000 and 100,000 records there (made at the
//! first run, which takes minutes); the rival's figures for that are quoted, not measured.

mod null;
mod ours;
mod rival;
mod windows;

use std::hint::black_box;
use std::path::{Path, PathBuf};

use crate::ours::{Ours, Stores};
use crate::rival::{OPEN_FROM_NOTES, Rival, Shape};
use crate::windows::{Both, CALLS, Pair, alternate, together, window};

const ROUNDS: usize = 3_000;
const SPANS: usize = 300;
const OPENS: u64 = 20;

/// One line of the table.
struct Row {
    what: String,
    unit: &'static str,
    rival: Option<Figures>,
    ours: Option<Figures>,
    /// What the notes say of the rival where it is not measured here, least and most.
    quoted: Option<(f64, f64)>,
}

#[derive(Clone, Copy, serde::Serialize)]
struct Figures {
    min: f64,
    median: f64,
    windows: usize,
}

impl Figures {
    fn of(mut all: Vec<f64>) -> Option<Self> {
        all.sort_by(f64::total_cmp);
        Some(Figures { min: *all.first()?, median: all[all.len() / 2], windows: all.len() })
    }
}

impl Row {
    fn new(what: &str, unit: &'static str, rival: Option<Figures>, ours: Option<Figures>) -> Self {
        Row { what: what.into(), unit, rival, ours, quoted: None }
    }

    /// How many times our time the rival takes, by medians. What is quoted was not measured beside ours: no ratio.
    fn ratio(&self) -> Option<f64> {
        Some(self.rival?.median / self.ours?.median)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut json, mut stores) = (false, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => json = true,
            "--stores" => stores = Some(PathBuf::from(args.next().ok_or("--stores needs a directory")?)),
            other => return Err(format!("'{other}' is not known: expected --json or --stores DIR").into()),
        }
    }
    // Each size has an anchor of its own: 64 shapes are 64 keys on both sides.
    let sizes = [24, 48, 96, 192];
    let shapes: Vec<Shape> =
        (0..64).map(|i| Shape { m: sizes[i % 4], n: sizes[i / 4 % 4], k: sizes[i / 16] }).collect();
    let (rival, ours) = (Rival::tuned(&shapes), Ours::ready(&shapes)?);
    let mut rows = hits(&rival, &ours, &shapes)?;
    if let Some(root) = stores {
        rows.extend(opens(&root)?);
    }
    print(&rows, json, &ours.chip());
    Ok(())
}

fn hits(rival: &Rival, ours: &Ours, shapes: &[Shape]) -> Result<Vec<Row>, warplap::Error> {
    let shape = |i: usize| *black_box(&shapes[i % shapes.len()]);
    let prepared = ours.prepared()?;
    let mut one = alternate(
        &[
            &|| window(|_| rival.hit(shape(0))),
            &|| window(|_| ours.hit(0)),
            &|| window(|i| rival.hit(shape(i))),
            &|| window(|i| ours.hit(i)),
            &|| window(|_| rival.execute(shape(0))),
            &|| {
                window(|_| {
                    black_box(black_box(&prepared).workspace());
                })
            },
        ],
        ROUNDS,
    )
    .into_iter()
    .map(Figures::of);
    let lanes: [Both<'_>; 4] = [
        &|me: usize, pair: &Pair| pair.span(me, |_| rival.hit(shape(0))),
        &|me: usize, pair: &Pair| pair.span(me, |_| ours.hit(0)),
        &|me: usize, pair: &Pair| pair.span(me, |i| rival.hit(shape(i))),
        &|me: usize, pair: &Pair| pair.span(me, |i| ours.hit(i)),
    ];
    let mut two = together(&lanes, SPANS).into_iter().map(Figures::of);
    let mut next = || one.next().flatten();
    let mut both = || two.next().flatten();
    Ok(vec![
        Row::new("hit, one problem", "ns", next(), next()),
        Row::new("hit, 64 problems in turn", "ns", next(), next()),
        Row::new("hit, one problem, two threads", "ns", both(), both()),
        Row::new("hit, 64 problems, two threads", "ns", both(), both()),
        Row::new("execute alone, set kept", "ns", next(), None),
        Row::new("prepared kernel", "ns", None, next()),
    ])
}

fn opens(root: &Path) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let stores = Stores::new()?;
    let mut rows = Vec::new();
    for (count, least, most) in OPEN_FROM_NOTES {
        let root = root.join(count.to_string());
        stores.fill(&root, count)?;
        let ours = Figures::of(stores.open(&root, count, OPENS)?);
        let what = format!("open {count} records, look one up");
        rows.push(Row { quoted: Some((least, most)), ..Row::new(&what, "ms", None, ours) });
    }
    Ok(rows)
}

/// The version of a package this program was built with.
fn version(package: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let after = lock.split(&format!("name = \"{package}\"\nversion = \"")).nth(1);
    after.and_then(|text| text.split('"').next()).unwrap_or("?")
}

fn print(rows: &[Row], json: bool, chip: &str) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    let (cubecl, warplap) = (version("cubecl-runtime"), version("warplap"));
    if json {
        for r in rows {
            let line = serde_json::json!({
                "what": r.what, "unit": r.unit, "cubecl": r.rival, "cubecl_from_notes": r.quoted, "warplap": r.ours,
                "ratio": r.ratio(), "calls": CALLS, "chip": chip, "load": load,
                "versions": { "cubecl-runtime": cubecl, "warplap": warplap },
            });
            println!("{line}");
        }
        return;
    }
    println!("{chip}, load {load}; time of one call, windows of {CALLS} calls\n");
    println!("{:<38}  {:^19}   {:^19}", "", format!("CubeCL {cubecl}"), format!("warplap {warplap}"));
    println!("{:<38}  {:>9} {:>9}   {:>9} {:>9}   {:>7}", "", "min", "median", "min", "median", "ratio");
    for r in rows {
        let digits = if r.unit == "ns" { 1 } else { 3 };
        let side = |f: Option<Figures>| match f {
            Some(f) => format!("{:>9.digits$} {:>9.digits$}", f.min, f.median),
            None => format!("{:>9} {:>9}", "–", "–"),
        };
        let rival =
            r.quoted.map_or_else(|| side(r.rival), |(least, most)| format!("{:>19}", format!("{least}–{most} *")));
        let ratio = r.ratio().map_or("–".into(), |x| format!("{x:.1}"));
        println!("{:<34}  {}  {rival}   {}   {ratio:>7}", r.what, r.unit, side(r.ours));
    }
    if rows.iter().any(|r| r.quoted.is_some()) {
        println!(
            "\n* from notes of an earlier run (its start with so many records), not measured here; ours with warm files"
        );
    }
}
