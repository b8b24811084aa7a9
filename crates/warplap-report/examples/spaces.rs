//! Finds the legal configs of space definitions, and says as a JSON line each how many there are and the seconds that
//! counting and listing took, parsing included, in the fastest of several repeats. Arguments: files.

use std::time::Instant;
use warplap_report::recorded::Recorded;

/// Listing 149 million configs is nobody's wish.
const LISTED: u128 = 10_000_000;
const REPEATS: usize = 25;

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path)?;
        let (mut counted, mut listed, mut legal, mut nodes) = (f64::INFINITY, None, 0, 0);
        for _ in 0..REPEATS {
            let started = Instant::now();
            let space = Recorded::definition(&text)?;
            legal = space.count();
            counted = counted.min(started.elapsed().as_secs_f64());
            if legal < LISTED {
                let rows = space.rows().map_or(0, |rows| rows.len());
                let seconds = started.elapsed().as_secs_f64();
                assert_eq!(rows as u128, legal);
                listed = Some(listed.map_or(seconds, |best: f64| best.min(seconds)));
            }
            nodes = space.diagram()?.nodes();
        }
        let listed = listed.map_or("null".to_string(), |s| s.to_string());
        println!(
            r#"{{"file": "{path}", "legal": {legal}, "nodes": {nodes}, "counted_seconds": {counted}, "listed_seconds": {listed}}}"#
        );
    }
    Ok(())
}
