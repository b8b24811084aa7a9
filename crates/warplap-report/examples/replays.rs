//! Replays searches on recorded spaces: a line per space and search with the mean score and its standard error, the mean
//! of best over optimum after 25, 100 and 400 trials, and one line over all spaces. Seeds count from 0.
//! Arguments: repeats, searches joined by commas, files. `FILE@DONOR` starts from the ten best of the donor's file,
//! `FILE@@DONOR` has all of it at hand.

use warplap_core::search::Brief;
use warplap_report::recorded::{Baseline, Recorded, replay};

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let repeats: u64 = arguments[0].parse()?;
    for name in arguments[1].split(',') {
        let (mut scores, mut errors, mut early, mut within) = (Vec::new(), 0.0, 0.0, [0.0; 2]);
        for argument in &arguments[2..] {
            let (path, donor) = argument.split_once('@').map_or((argument.as_str(), None), |(p, d)| (p, Some(d)));
            let whole = donor.is_some_and(|d| d.starts_with('@'));
            let donor = donor.map(|d| d.trim_start_matches('@'));
            let donor = donor.map(|path| Recorded::read(path.as_ref())).transpose()?;
            let recorded = Recorded::read(path.as_ref())?;
            let baseline = Baseline::new(&recorded, 400).ok_or("nothing was right")?;
            let priors: Vec<_> = donor.iter().flat_map(|d| d.best(10)).map(Recorded::donor).collect();
            let all = donor.iter().filter(|_| whole).flat_map(Recorded::right);
            let elsewhere: Vec<_> = all.map(|(config, time)| (Recorded::donor(config), time)).collect();
            let (mut runs, mut ratio, mut own) = (Vec::new(), [0.0; 3], 0.0);
            for seed in 0..repeats {
                let brief = Brief { seed, priors: priors.clone(), elsewhere: elsewhere.clone(), ..Brief::default() };
                let run = replay(&recorded, name, 400, &brief).ok_or("no such search")?;
                runs.push(baseline.score(&run.curve));
                own += run.own_seconds / run.trials as f64 * 1e6 / repeats as f64;
                let at = |k| run.curve.best_at(k).unwrap_or(baseline.slowest_ms) / baseline.optimum_ms;
                [25, 100, 400].iter().zip(&mut ratio).for_each(|(k, r)| *r += at(*k) / repeats as f64);
                [100, 400].iter().zip(&mut within).for_each(|(k, w)| *w += f64::from(at(*k) <= 1.05));
            }
            let score = runs.iter().sum::<f64>() / repeats as f64;
            let spread = runs.iter().map(|r| (r - score).powi(2)).sum::<f64>();
            let error = spread / (repeats.max(2) - 1) as f64 / repeats as f64;
            println!(
                "{:28} {name:10} {score:+.3} ±{:.3}  {:.3} {:.3} {:.3}  {own:.0} us/trial",
                recorded.name,
                error.sqrt(),
                ratio[0],
                ratio[1],
                ratio[2]
            );
            scores.push(score);
            errors += error;
            early += ratio[0];
        }
        let runs = (repeats as usize * scores.len()) as f64;
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        let early = early / scores.len() as f64;
        println!(
            "{:28} {name:10} {mean:+.3} ±{:.3}  {early:.3}  P100 {:.2} P400 {:.2}",
            "MEAN",
            errors.sqrt() / scores.len() as f64,
            within[0] / runs,
            within[1] / runs
        );
    }
    Ok(())
}
