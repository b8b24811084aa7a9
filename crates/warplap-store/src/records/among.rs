//! A tuning among fewer candidates: an edition and who a program has come in; what the edition says of those alone goes
//! out. The fastest of them answers, and how far the others are behind it follows from how far all were behind the
//! winner. Nothing is measured.

use std::collections::{BTreeMap, HashMap};

use crate::records::candidate::Candidate;
use crate::records::measurement::Behind;
use crate::records::record::TuningRun;
use crate::records::verdict::{Grade, Verdict, WonBy};

impl TuningRun {
    /// The edition as it would stand had only these candidates raced: those that are left out are forgotten, so that they
    /// race where they are to be had. `versions` are those of whoever asks. `None` where none of them was right.
    pub fn among(&self, has: &dyn Fn(&Candidate) -> bool, versions: &BTreeMap<String, String>) -> Option<TuningRun> {
        let mut ranked = self.ranked();
        ranked.retain(|r| has(&r.trial.candidate));
        let first = ranked.iter().position(|r| r.trial.is_right())?;
        ranked.drain(..first);
        let first = ranked[0];
        let winner = first.trial.candidate.clone();
        // The gap of the first is only known so well, which everyone's gap to it takes over.
        let [low, high] = first.ci.unwrap_or([first.behind; 2]);
        let less = |gap: f64, by: f64| (1.0 + gap) / (1.0 + by) - 1.0;
        let behind: HashMap<Candidate, Behind> = ranked[1..]
            .iter()
            .filter_map(|r| {
                let [from, to] = r.ci?;
                let by = less(r.behind, first.behind).max(0.0);
                Some((r.trial.candidate.clone(), Behind { by, ci: [less(from, high), less(to, low)] }))
            })
            .collect();
        let others = ranked[1..].iter().filter(|r| r.trial.is_right()).map(|r| &r.trial.candidate);
        let ties: Vec<Candidate> = others.filter(|c| behind.get(c).is_none_or(Behind::is_tie)).cloned().collect();
        let runner_up = ranked.get(1).map(|r| r.trial.candidate.clone());
        let margin = runner_up.as_ref().and_then(|c| behind.get(c)).map(|b| b.by);
        let [from, to] = first.measurement.ci_us;
        let scale = first.time_us / first.measurement.median_us;
        let verdict = Verdict {
            median_us: first.time_us,
            ci_us: [from * scale, to * scale],
            runner_up,
            margin,
            won_by: WonBy::Time,
            confidence: 0.0,
            // Who of them is the fastest was never the question.
            grade: if ties.is_empty() && first.ci.is_some() { self.verdict.grade } else { Grade::Capped },
            ties,
            winner,
            ..self.verdict.clone()
        };
        let mut trials = self.trials.clone();
        trials.retain(|t| has(&t.candidate));
        trials.iter_mut().for_each(|t| t.place(&behind));
        let mut sizes = self.sizes.clone();
        sizes.retain(|size| has(&size.winner));
        sizes.iter_mut().for_each(|size| size.behind.retain(|(c, _)| has(c)));
        Some(TuningRun { soft: versions.clone(), verdict, trials, sizes, end_to_end_race: None, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::candidate::{Outcome, SourceHash, Trial};
    use crate::records::config::Config;
    use crate::records::measurement::Measurement;
    use crate::records::work::Work;

    fn candidate(name: &str) -> Candidate {
        Candidate { variant: name.into(), config: Config::new(), source: SourceHash::of(&[name]) }
    }

    /// Who took so long, and how far it was behind the first, give or take.
    fn edition(all: &[(&str, f64, f64)]) -> TuningRun {
        let best = all[0].1;
        let trial = |(n, &(name, us, give)): (usize, &(&str, f64, f64))| {
            let by = us / best - 1.0;
            let behind = (n > 0).then(|| Box::new(Behind { by, ci: [by - give, by + give] }));
            let measured =
                Measurement { median_us: us, ci_us: [us * 0.99, us * 1.01], behind, ..Measurement::default() };
            Trial::new(candidate(name), Outcome::Measured(measured))
        };
        TuningRun {
            soft: BTreeMap::from([("race".into(), "1".into()), ("torch".into(), "2".into())]),
            origin: "0123456789abcdef".into(),
            tuned_at: 7,
            program: "0".into(),
            verdict: Verdict {
                winner: candidate(all[0].0),
                median_us: best,
                ci_us: [best * 0.99, best * 1.01],
                runner_up: None,
                margin: None,
                ties: Vec::new(),
                won_by: WonBy::Call,
                eps: 0.01,
                confidence: 0.99,
                grade: Grade::Clean,
                rounds: 9,
                launches: 99,
            },
            trials: all.iter().enumerate().map(trial).collect(),
            skipped: Vec::new(),
            work: Work::default(),
            floor_us: None,
            seconds: 1.0,
            end_to_end_race: None,
            artifacts: Default::default(),
            sizes: Vec::new(),
            vouched: Default::default(),
        }
    }

    #[test]
    fn the_fastest_of_those_that_are_there_answers_and_the_others_are_behind_it() {
        let versions = BTreeMap::from([("race".to_string(), "1".to_string())]);
        let all = edition(&[("torch", 10.0, 0.0), ("a", 12.0, 0.01), ("b", 15.0, 0.01)]);
        let here = |c: &Candidate| c.variant != "torch";
        let seen = all.among(&here, &versions).unwrap();
        assert_eq!((seen.verdict.winner.variant.as_str(), seen.verdict.grade), ("a", Grade::Clean));
        assert!((seen.verdict.median_us - 12.0).abs() < 1e-9 && seen.soft == versions);
        assert_eq!(seen.trials.len(), 2, "who is not there is a newcomer where it is");
        let ranked = seen.ranked();
        let b = ranked[1];
        assert_eq!(b.ratio().map(|(ratio, _)| (ratio * 100.0).round()), Some(125.0));
        assert!((b.behind - 0.25).abs() < 1e-9, "{}", b.behind);
        let [low, high] = b.ci.unwrap();
        assert!(low < 0.25 - 0.01 / 1.2 && high > 0.25 + 0.01 / 1.2, "as wide as both: {low} {high}");
        // Two that could not be told apart among themselves are open.
        let near = edition(&[("torch", 10.0, 0.0), ("a", 12.0, 0.02), ("b", 12.1, 0.02)]);
        let seen = near.among(&here, &versions).unwrap();
        assert_eq!((seen.verdict.grade, seen.verdict.ties.len()), (Grade::Capped, 1));
        assert!(all.among(&|c| c.variant == "c", &versions).is_none());
    }
}
