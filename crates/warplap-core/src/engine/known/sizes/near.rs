//! Neighbours: sizes at which candidates were measured and one at which none was come in; who is ahead there, where
//! neighbours agree, goes out.

use crate::candidate::Candidate;

/// Sizes this near (3 %) are one.
const NEAR: f64 = 0.03;
/// Two sizes that agree speak for those between them, as long as one is no more than half as large again (ln 1.5) …
const SPAN: f64 = 0.405;
/// … and for those beyond them by so much (12 %).
const BEYOND: f64 = 0.113;
/// Who is behind by no more than this would do as well as the winner.
const AS_GOOD: f64 = 0.02;

/// Candidates as they were measured at one size.
pub(crate) struct OfSize<'e> {
    pub(crate) problem: &'e str,
    pub(crate) winner: &'e Candidate,
    /// Who, and how far behind the fastest there.
    pub(crate) ranked: &'e [(Candidate, f64)],
}

impl<'e> OfSize<'e> {
    /// The best of those who would do as well as the winner at both sizes.
    fn agrees(&self, other: &OfSize<'e>) -> Option<&'e Candidate> {
        let by = |c: &Candidate| other.ranked.iter().find(|(o, _)| o == c).map(|(_, by)| *by);
        let both = self.ranked.iter().filter_map(|(c, own)| Some((c, own.max(by(c)?))));
        both.filter(|(_, by)| *by <= AS_GOOD).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(c, _)| c)
    }
}

/// The logarithms of the ratios by which the sizes of one problem are above another's; `None` where more than sizes
/// differs.
fn above(problem: &str, of: &str) -> Option<Vec<f64>> {
    let fields = |text: &'_ str| text.split([':', ',']).map(str::to_string).collect::<Vec<_>>();
    let (ours, theirs) = (fields(problem), fields(of));
    if ours.len() != theirs.len() {
        return None;
    }
    let mut result = Vec::new();
    for (a, b) in ours.iter().zip(&theirs).filter(|(a, b)| a != b) {
        let ((name, a), (other, b)) = (a.split_once('=')?, b.split_once('=')?);
        let (a, b): (u64, u64) = (a.parse().ok()?, b.parse().ok()?);
        if name != other {
            return None;
        }
        result.push((a.max(1) as f64 / b.max(1) as f64).ln());
    }
    Some(result)
}

fn distance(ratios: &[f64]) -> f64 {
    ratios.iter().fold(0.0, |far, by| f64::max(far, by.abs()))
}

/// The sizes of another problem where they are not this one's: `m=57, n=12`.
pub(crate) fn differences(problem: &str, of: &str) -> Option<String> {
    above(problem, of)?;
    let own: Vec<&str> = problem.split([':', ',']).collect();
    let others = of.split([':', ',']).zip(own).filter(|(other, own)| other != own);
    Some(others.map(|(other, _)| other).collect::<Vec<_>>().join(", "))
}

/// The winner of the nearest size.
pub(crate) fn nearest(seen: &[OfSize<'_>], problem: &str) -> Option<Candidate> {
    let known = seen.iter().filter_map(|s| Some((s.winner, distance(&above(problem, s.problem)?))));
    known.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(winner, _)| winner.clone())
}

/// Who is ahead at a size by what was seen around it.
pub(crate) fn agreed(seen: &[OfSize<'_>], problem: &str) -> Option<Candidate> {
    let known: Vec<(&OfSize<'_>, Vec<f64>)> =
        seen.iter().filter_map(|s| Some((s, above(problem, s.problem)?))).collect();
    let on_side = |side: f64| {
        let mut all: Vec<(&OfSize<'_>, f64)> = known
            .iter()
            .filter(|(_, ratios)| ratios.iter().all(|by| by * side >= 0.0))
            .map(|(s, ratios)| (*s, distance(ratios)))
            .collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        all
    };
    let sides = [on_side(1.0), on_side(-1.0)]; // those below it, those above it
    let close = sides.iter().flatten().filter(|(_, far)| *far <= NEAR).min_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((one, _)) = close {
        return Some(one.winner.clone());
    }
    if let [Some((below, down)), Some((above, up))] = [sides[0].first(), sides[1].first()] {
        let near = down + up <= SPAN;
        return near.then(|| below.agrees(above)).flatten().cloned();
    }
    let last = sides.iter().find(|side| !side.is_empty())?;
    let ([first, second, ..], true) = (last.as_slice(), last[0].1 <= BEYOND) else { return None };
    first.0.agrees(second.0).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::SourceHash;
    use crate::space::Config;

    fn candidate(name: &str) -> Candidate {
        Candidate { variant: name.into(), config: Config::new(), source: SourceHash::of(&[name]) }
    }

    /// Who is agreed on at a problem where these were seen: sizes, and how far behind each candidate was.
    fn winner_of(problem: &str, seen: &[(&str, &[(&str, f64)])]) -> Option<String> {
        let all: Vec<Vec<(Candidate, f64)>> =
            seen.iter().map(|(_, r)| r.iter().map(|(name, by)| (candidate(name), *by)).collect()).collect();
        let seen = seen.iter().zip(&all);
        let seen: Vec<OfSize<'_>> =
            seen.map(|((p, _), ranked)| OfSize { problem: p, winner: &ranked[0].0, ranked }).collect();
        agreed(&seen, problem).map(|c| c.variant)
    }

    #[test]
    fn neighbours_that_agree_speak_for_what_lies_between_and_no_others_do() {
        let (a, b): (&[_], &[_]) = (&[("a", 0.0), ("b", 0.3)], &[("b", 0.0), ("a", 0.3)]);
        let nearly: &[_] = &[("b", 0.0), ("a", 0.015)];
        assert_eq!(winner_of("g:m=101", &[("g:m=100", a)]), Some("a".into()), "as good as measured");
        assert_eq!(winner_of("g:m=120", &[("g:m=100", a)]), None);
        assert_eq!(winner_of("g:m=120", &[("g:m=100", a), ("g:m=140", a)]), Some("a".into()));
        assert_eq!(winner_of("g:m=120", &[("g:m=100", a), ("g:m=140", nearly)]), Some("a".into()));
        assert_eq!(winner_of("g:m=120", &[("g:m=100", a), ("g:m=140", b)]), None);
        assert_eq!(winner_of("g:m=120", &[("g:m=100", a), ("g:m=200", a)]), None, "too far apart");
        assert_eq!(winner_of("g:m=110", &[("g:m=100", a), ("g:m=80", a)]), Some("a".into()), "a little further on");
        assert_eq!(winner_of("g:m=130", &[("g:m=100", a), ("g:m=80", a)]), None);
        assert_eq!(winner_of("g:m=110", &[("g:m=100", a), ("g:m=80", b)]), None);
    }

    #[test]
    fn several_sizes_are_compared_together_and_what_is_no_size_is_never_between() {
        let a: &[_] = &[("a", 0.0)];
        let two = [("g:m=100,n=8,t=f32", a), ("g:m=140,n=10,t=f32", a)];
        assert_eq!(winner_of("g:m=120,n=9,t=f32", &two), Some("a".into()));
        assert_eq!(winner_of("g:m=120,n=16,t=f32", &two), None, "not between");
        assert_eq!(winner_of("g:m=120,n=9,t=f16", &two), None);
        assert_eq!(differences("g:m=1,n=2,t=x", "g:m=3,n=2,t=x").as_deref(), Some("m=3"));
        assert_eq!(differences("g:m=1,t=x", "g:m=3,t=y"), None);
    }
}
