//! Finds the legal configs of space definitions and says how many there are, how long counting and listing took, and
//! how large the diagram is. Arguments: files of the neutral form.

use std::time::Instant;
use warplap_core::recorded::Recorded;

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path)?;
        let mut best = [f64::INFINITY; 2];
        let mut shown = (0, 0);
        for _ in 0..5 {
            let started = Instant::now();
            let space = Recorded::definition(&text)?;
            let count = space.count();
            best[0] = best[0].min(started.elapsed().as_secs_f64());
            if count < 10_000_000 {
                let rows = space.rows().map_or(0, |r| r.len());
                assert_eq!(rows as u128, count);
                best[1] = best[1].min(started.elapsed().as_secs_f64());
            }
            shown = (count, space.diagram()?.nodes());
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        println!("{name:28} {:>12} nodes {:>8} count {:.6} list {:.6}", shown.0, shown.1, best[0], best[1]);
    }
    Ok(())
}
