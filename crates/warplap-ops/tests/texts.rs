//! Texts, keys, work and slots of several hundred problems of every operation, as they have always been: records are
//! found by keys, programs and docs say texts. What is refused is refused in the same words.
//!
//! `texts/<operation>.txt` holds them: `> ` begins a problem's text, what follows is what becomes of it. With
//! `WARPLAP_WRITE_TEXTS=1` they are written anew for the texts in them; whoever does so says in CHANGELOG whose records
//! are lost.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use warplap_core::bucket::Bucket;
use warplap_core::op::Op;
use warplap_core::problem::{Problem, ProblemError};
use warplap_core::slot::Slot;
use warplap_ops::registry::{self, Known, Visitor};

/// Where the problems of an operation are.
fn file<O: Known>() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/texts").join(format!("{}.txt", O::NAME))
}

fn kept<O: Known>() -> String {
    std::fs::read_to_string(file::<O>()).unwrap_or_else(|_| {
        panic!(
            "{}: write texts of its problems, one a line with '> ' in front, to {}, and run this test with \
             WARPLAP_WRITE_TEXTS=1",
            O::NAME,
            file::<O>().display()
        )
    })
}

/// The texts of an operation's problems, and what becomes of each.
fn now<O: Known>(kept: &str) -> String {
    let texts = kept.lines().filter_map(|line| line.strip_prefix("> "));
    texts.map(|text| format!("> {text}\n{}", O::parse(text).map_or_else(refused, |p| said::<O>(&p)))).collect()
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
    #[derive(Default)]
    struct Compare {
        problems: usize,
        changed: Vec<String>,
    }
    impl Visitor for Compare {
        fn visit<O: Known>(&mut self) {
            let kept = kept::<O>();
            let now = now::<O>(&kept);
            if std::env::var_os("WARPLAP_WRITE_TEXTS").is_some() {
                std::fs::write(file::<O>(), &now).expect("a file to write");
                return;
            }
            let problems = |all: &str| all.split("> ").skip(1).map(str::to_string).collect::<Vec<_>>();
            let (kept, now) = (problems(&kept), problems(&now));
            assert_eq!(kept.len(), now.len(), "{}: problems", O::NAME);
            self.problems += kept.len();
            let others = kept.iter().zip(&now).filter(|(kept, now)| kept != now);
            self.changed.extend(others.map(|(kept, now)| format!("was {kept}is  {now}")));
        }
    }
    let mut compare = Compare::default();
    registry::each(&mut compare);
    if std::env::var_os("WARPLAP_WRITE_TEXTS").is_some() {
        return;
    }
    let Compare { problems, changed } = compare;
    assert!(problems >= 500, "only {problems} problems");
    assert!(changed.is_empty(), "{} of {problems} are others:\n{}", changed.len(), changed.join("\n"));
}

#[test]
fn every_field_of_an_operation_is_among_them() {
    struct Fields;
    impl Visitor for Fields {
        fn visit<O: Known>(&mut self) {
            let kept = kept::<O>();
            let texts = kept.lines().filter_map(|line| line.strip_prefix("> ")?.split_once(':'));
            let own: String = texts.map(|(_, fields)| format!(",{fields},")).collect();
            for field in O::Problem::FIELDS {
                assert!(
                    own.contains(&format!(",{field}=")),
                    "{}: no text in {} has {field}",
                    O::NAME,
                    file::<O>().display()
                );
            }
        }
    }
    registry::each(&mut Fields);
}
