//! Names of candidates side by side: what they all have in common is said once, what distinguishes them stays.

use std::collections::BTreeMap;

use warplap::core::candidate::Candidate;

/// The names of some candidates without the settings that all of their variant share here, and those settings as one
/// line a variant. A variant that is there once keeps nothing but its name where that tells it from the others.
pub(crate) fn distinct_names(candidates: &[&Candidate]) -> (Vec<String>, Vec<String>) {
    let mut by_variant: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    for candidate in candidates {
        by_variant.entry(candidate.variant.as_str()).or_default().push(candidate);
    }
    let shared = |of: &[&Candidate], name: &str| {
        of.iter().all(|c| c.config.get(name).is_some() && c.config.get(name) == of[0].config.get(name))
    };
    let name = |candidate: &&Candidate| {
        let of = &by_variant[candidate.variant.as_str()];
        let own = candidate.config.0.iter().filter(|(name, _)| !shared(of, name));
        let own: Vec<String> = own.map(|(name, value)| format!("{name}={value}")).collect();
        let rest = own.len() < candidate.config.0.len();
        match (own.is_empty(), rest) {
            (true, false) => candidate.variant.clone(),
            (true, true) => format!("{}[…]", candidate.variant),
            (false, false) => format!("{}[{}]", candidate.variant, own.join(",")),
            (false, true) => format!("{}[{},…]", candidate.variant, own.join(",")),
        }
    };
    let common = |(variant, of): (&&str, &Vec<&Candidate>)| {
        let all = of[0].config.0.iter().filter(|(name, _)| shared(of, name));
        let all: Vec<String> = all.map(|(name, value)| format!("{name}={value}")).collect();
        (!all.is_empty()).then(|| format!("{variant}[…]: {}", all.join(",")))
    };
    (candidates.iter().map(name).collect(), by_variant.iter().filter_map(common).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap::core::candidate::SourceHash;
    use warplap::core::space::Config;

    fn who(variant: &str, config: &str) -> Candidate {
        let config = if config.is_empty() { Config::new() } else { Config::parse(config).unwrap() };
        Candidate { variant: variant.into(), config, source: SourceHash(String::new()) }
    }

    #[test]
    fn what_all_share_is_said_once_and_what_distinguishes_stays() {
        let all = [who("tiled", "mr=6,nr=16,threads=2"), who("tiled", "mr=4,nr=16,threads=2"), who("naive", "")];
        let (names, common) = distinct_names(&all.iter().collect::<Vec<_>>());
        assert_eq!(names, ["tiled[mr=6,…]", "tiled[mr=4,…]", "naive"]);
        assert_eq!(common, ["tiled[…]: nr=16,threads=2"]);
        let one = who("tiled", "mr=6");
        assert_eq!(distinct_names(&[&one]).0, ["tiled[…]"]);
        assert!(distinct_names(&[]).0.is_empty());
    }
}
