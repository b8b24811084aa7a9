//! Texts, keys, work and slots of several hundred problems of every operation, as they have always been: records are
//! found by keys, programs and docs say texts. What is refused is refused in the same words.
//!
//! `texts/problems.txt` holds them: `> ` begins a problem's text, what follows is what becomes of it. With
//! `WARPLAP_WRITE_TEXTS=1` it is written anew for the texts in it; whoever does so says in CHANGELOG whose records are
//! lost.

use std::fmt::Write;
use std::path::Path;

use warplap_core::bucket::Bucket;
use warplap_core::op::Op;
use warplap_core::problem::{Problem, ProblemError};
use warplap_core::slot::Slot;
use warplap_ops::registry::{self, Known, Visitor};

/// What becomes of one text.
struct Becomes<'a> {
    text: &'a str,
    found: Option<String>,
}

impl Visitor for Becomes<'_> {
    fn visit<O: Known>(&mut self) {
        if self.text.split(':').next() == Some(O::NAME) {
            self.found = Some(O::parse(self.text).map_or_else(refused, |p| said::<O>(&p)));
        }
    }
}

fn refused(error: ProblemError) -> String {
    format!("refused: {error}\n")
}

fn said<O: Op>(p: &O::Problem) -> String {
    let mut said = format!("text {}\n", O::text(p));
    let exact = p.key_fields(&Bucket::Exact);
    let _ = writeln!(said, "exact {exact}");
    // What is as the line above is left out.
    let mut last = exact;
    for bucket in [Bucket::PowerOfTwo, Bucket::Changing] {
        let key = p.key_fields(&bucket);
        if key != last {
            let _ = writeln!(said, "{} {key}", bucket.name());
            last = key;
        }
    }
    let mut last = p.clone();
    for (name, other) in [("raced", Some(p.raced())), ("ragged", p.ragged()), ("smaller", p.smaller())] {
        if let Some(other) = other.filter(|other| *other != last) {
            let _ = writeln!(said, "{name} {}", other.fields());
            last = other;
        }
    }
    let work = p.work();
    let _ = writeln!(said, "work {} flops, {} bytes, {}", work.flops, work.bytes, p.dtype());
    for slot in O::signature(p).slots().iter().filter(|slot| slot.present) {
        let Slot { name, role, dtype, shape, strides, align, steady, .. } = slot;
        let _ = write!(said, "slot {name} {role:?} {dtype} {shape:?}/{strides:?} {align}");
        said.push_str(if *steady { " steady\n" } else { "\n" });
    }
    said
}

#[test]
fn texts_keys_work_and_slots_are_what_they_have_always_been() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/texts/problems.txt");
    let kept = std::fs::read_to_string(&file).expect("the problems");
    let mut now = String::new();
    for text in kept.lines().filter_map(|line| line.strip_prefix("> ")) {
        let mut becomes = Becomes { text, found: None };
        registry::each(&mut becomes);
        let _ = write!(now, "> {text}\n{}", becomes.found.unwrap_or_else(|| panic!("{text}: of no operation")));
    }
    if std::env::var_os("WARPLAP_WRITE_TEXTS").is_some() {
        std::fs::write(&file, now).expect("a file to write");
        return;
    }
    let problems = |all: &str| all.split("> ").skip(1).map(str::to_string).collect::<Vec<_>>();
    let (kept, now) = (problems(&kept), problems(&now));
    assert!(kept.len() >= 500, "only {} problems", kept.len());
    let changed: Vec<String> =
        kept.iter().zip(&now).filter(|(k, n)| k != n).map(|(k, n)| format!("was {k}is  {n}")).collect();
    assert!(changed.is_empty(), "{} of {} are others:\n{}", changed.len(), kept.len(), changed.join("\n"));
}

#[test]
fn every_operation_and_every_field_of_it_is_among_them() {
    struct Fields<'a>(&'a str);
    impl Visitor for Fields<'_> {
        fn visit<O: Known>(&mut self) {
            let own = self.0.lines().filter(|line| line.starts_with(&format!("> {}:", O::NAME)));
            let own: String =
                own.map(|line| format!(",{},", line.split_once(':').map_or("", |(_, rest)| rest))).collect();
            for field in O::Problem::FIELDS {
                assert!(own.contains(&format!(",{field}=")), "{}: no text in problems.txt has {field}", O::NAME);
            }
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/texts/problems.txt");
    registry::each(&mut Fields(&std::fs::read_to_string(&file).expect("the problems")));
}
