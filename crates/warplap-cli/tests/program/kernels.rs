//! A user's own kernel from the command line: tuned, explained, shown, written down; and what bad specs are answered
//! with.

use std::path::{Path, PathBuf};

use serde_json::Value;
use warplap::report::recorded::Recorded;

use super::Corner;

const SOURCE: &str = "void twice(float *restrict y, const float *restrict x) {\n\
    #if UNROLL == 3\n#error three is not for us\n#endif\n\
    for (int i = 0; i < N; i += UNROLL) for (int j = 0; j < UNROLL && i + j < N - (UNROLL == 5); j++) y[i + j] = 2 * x[i + j];\n}\n";

const SPEC: &str = "source = \"twice.c\"\nentry = \"twice\"\nbudget = 100\n[constants]\nN = 4096\n[axes]\n\
    UNROLL = [1, 2, 3, 4, 5]\nPAD = [0, 1]\n[[arguments]]\nname = \"y\"\nrole = \"out\"\ndtype = \"f32\"\nshape = \"N\"\n\
    [[arguments]]\nname = \"x\"\ndtype = \"f32\"\nshape = \"N\"\n[metric]\nflops = \"N\"\nbytes = \"8 * N\"\n";

pub(super) fn spec(place: &Corner) -> PathBuf {
    let path = place.dir.path().join("twice.toml");
    std::fs::write(place.dir.path().join("twice.c"), SOURCE).unwrap();
    std::fs::write(&path, SPEC).unwrap();
    path
}

/// The facts inside a report.
fn facts(html: &str) -> Value {
    let start = html.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let end = start + html[start..].find("</script>").unwrap();
    serde_json::from_str(&html[start..end]).unwrap()
}

#[test]
fn a_spec_is_tuned_explained_shown_and_written_down() {
    let place = Corner::new();
    let path = spec(&place);
    let path = path.to_str().unwrap();
    let tuned = place.run(&["tune", path, "--json"]);
    assert_eq!(tuned.code, 0, "{}", tuned.stderr);
    let line = tuned.lines().remove(0);
    let trials = line["trials"].as_array().unwrap();
    assert_eq!((trials.len(), line["op"].as_str()), (10, Some("kernel")));
    let rejected = |word: &str| trials.iter().filter(|t| t["rejection"] == word).count();
    assert_eq!((rejected("does_not_build"), rejected("wrong_answer")), (2, 2), "{line}");
    assert!(line["builds"]["count"].as_u64().unwrap() >= 10);
    let again = place.run(&["tune", path, "--mode", "replay", "--json"]);
    assert_eq!(again.lines()[0]["from_store"], true, "{}", again.stderr);

    let explained = place.run(&["explain", path]);
    assert_eq!(explained.code, 0, "{}", explained.stderr);
    assert!(explained.stdout.contains("three is not for us"), "{}", explained.stdout);

    let page = place.dir.path().join("report.html");
    let shown = place.run(&["report", path, "-o", page.to_str().unwrap()]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let html = std::fs::read_to_string(&page).unwrap();
    let facts = facts(&html);
    assert_eq!(facts["trials"].as_array().unwrap().len(), trials.len());
    for trial in trials {
        let same = |t: &&Value| t["config"] == trial["config"];
        let shown = facts["trials"].as_array().unwrap().iter().find(same).unwrap();
        assert_eq!(shown["us"].as_f64().is_some(), trial["median_us"].as_f64().is_some());
        assert!(shown["command"].as_str().unwrap().starts_with("warplap bench"), "{shown}");
    }
    assert_eq!(facts["axes"].as_array().unwrap().len(), 2);
    let elsewhere = html.split("http").skip(1).filter(|rest| !rest.starts_with("://www.w3.org/2000/svg\""));
    assert_eq!(elsewhere.count(), 0, "the page names something on the network");

    let timed = trials.iter().filter(|t| t["median_us"].is_number()).count();
    assert!(timed > 0 && timed <= 6, "{line}");
    exports_read_back(&place, path, (trials.len(), timed));
}

#[test]
fn a_kernel_of_which_no_config_is_right_is_one_sentence_and_no_success() {
    let place = Corner::new();
    let path = spec(&place);
    let loops = |name: &str, body: &str| {
        format!(
            "void {name}(float *restrict y, const float *restrict x) {{\n  for (int i = 0; i < N; i++) {body}\n}}\n"
        )
    };
    std::fs::write(place.dir.path().join("twice.c"), loops("twice", "y[i] = 3 * x[i];")).unwrap();
    std::fs::write(place.dir.path().join("plain.c"), loops("plain", "y[i] = 2 * x[i];")).unwrap();
    let with_reference = SPEC.replace("[axes]", "[reference]\nsource = \"plain.c\"\nentry = \"plain\"\n[axes]");
    std::fs::write(&path, with_reference.replace("UNROLL = [1, 2, 3, 4, 5]", "UNROLL = [1, 2]")).unwrap();
    let tuned = place.run(&["tune", path.to_str().unwrap(), "--budget", "20"]);
    assert_eq!(tuned.code, 1, "{}{}", tuned.stdout, tuned.stderr);
    let why = "twice: not one of 4 configs is right, and the reference answers: twice[";
    assert!(tuned.stderr.contains(why) && tuned.stderr.contains("wrong answer: "), "{}", tuned.stderr);
}

#[test]
fn a_spec_with_derived_values_is_counted_recorded_and_replayed() {
    let place = Corner::new();
    let path = spec(&place);
    let text =
        SPEC.replace("[[arguments]]\nname = \"y\"", "[derived]\nAREA = \"UNROLL * 8\"\n[[arguments]]\nname = \"y\"");
    // Without a floor: what lies in the nearest caches may be faster than what a test build takes for possible.
    let text = text.replace("UNROLL = [1, 2, 3, 4, 5]", "UNROLL = [1, 2]").replace("bytes = \"8 * N\"\n", "");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let counted = place.run(&["space", path, "--sample", "1", "--json"]);
    assert_eq!((counted.code, counted.lines()[0]["legal"].as_u64()), (0, Some(4)), "{}", counted.stderr);
    assert!(counted.lines()[1]["config"]["AREA"].is_u64());
    let file = place.dir.path().join("twice.json");
    let file = file.to_str().unwrap();
    let recorded = place.run(&["record", path, "-o", file, "--samples", "3", "--json"]);
    assert_eq!(recorded.code, 0, "{}", recorded.stderr);
    assert_eq!(recorded.lines()[0]["right"], 4, "{}", recorded.stdout);
    let replayed = place.run(&["replay", "--space", file, "--budget", "4", "--repeats", "1", "--json"]);
    assert_eq!(replayed.lines()[0]["best_over_optimum"], 1.0, "{}", replayed.stderr);
}

fn exports_read_back(place: &Corner, path: &str, (trials, timed): (usize, usize)) {
    let header = place.run(&["export", path, "--header"]);
    assert_eq!(header.code, 0, "{}", header.stderr);
    assert!(header.stdout.contains("#define UNROLL ") && header.stdout.ends_with("#endif\n"), "{}", header.stdout);
    for form in ["--t4", "--kernel-tuner"] {
        let file = place.dir.path().join("out.json");
        let written = place.run(&["export", path, form, "-o", file.to_str().unwrap()]);
        assert_eq!(written.code, 0, "{}", written.stderr);
        let text = std::fs::read_to_string(&file).unwrap();
        // Kernel Tuner takes a file for a torn one unless it ends so.
        assert!(form == "--t4" || text.ends_with("}\n}"), "{text}");
        let recorded = Recorded::parse(&text).unwrap();
        assert_eq!((recorded.len(), recorded.times().count()), (trials, timed), "{form}");
        let page = place.dir.path().join("recorded.html");
        let shown = place.run(&["report", file.to_str().unwrap(), "-o", page.to_str().unwrap()]);
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        assert_eq!(facts(&std::fs::read_to_string(page).unwrap())["trials"].as_array().unwrap().len(), trials);
    }
}

#[test]
fn a_bad_spec_names_the_file_and_the_line_and_changes_nothing() {
    let place = Corner::new();
    let path = spec(&place);
    let before = place.snapshot();
    let refused = |text: &str, names: &str| {
        std::fs::write(&path, text).unwrap();
        let ended = place.run(&["tune", path.to_str().unwrap()]);
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(ended.stdout.is_empty() && ended.stderr.contains(names), "'{names}' is not in {}", ended.stderr);
        assert!(ended.stderr.contains("expected"), "{}", ended.stderr);
        assert_eq!(place.snapshot(), before, "{names}");
    };
    let with = |from: &str, to: &str| SPEC.replacen(from, to, 1);
    // An unknown axis in a rule; an empty space; a rule that is never true.
    refused(&with("budget = 100", "rules = [\"UNROL > 1\"]"), "twice.toml:3: rule");
    refused(&with("PAD = [0, 1]", "PAD = []"), "twice.toml:8: axis 'PAD'");
    refused(&with("budget = 100", "rules = [\"UNROLL > 3\", \"UNROLL < 3\"]"), "twice.toml:3: ");
    refused(&with("budget = 100", "rules = [\"UNROLL > 9\"]"), "twice.toml:3: the rule 'UNROLL > 9' is never true");
    refused(&with("budget = 100", "bugdet = 100"), "did you mean `budget`?");
    // A kernel that compiles in no config.
    refused(&with("entry = \"twice\"", "entry = \"thrice\""), "twice.c");
    std::fs::write(place.dir.path().join("twice.c"), "void twice(float *y, const float *x) {\n  retrun;\n}\n").unwrap();
    refused(SPEC, "twice.c:2:");
    spec(&place);
    // A reference of another shape.
    let npy = |len: usize| {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({len},), }}\n");
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &vec![0; 4 * len]].concat()
    };
    std::fs::write(place.dir.path().join("y.npy"), npy(7)).unwrap();
    let filed = format!(
        "{}[reference]\nfile = \"y.npy\"\n",
        SPEC.replace("shape = \"N\"\n[metric]", "shape = \"N\"\nfill = \"zeros\"\n[metric]")
    );
    refused(&filed, "twice.toml:23: the answer has the shape [7]: expected [4096]");
    refused(&with("twice.c", "nonesuch.c"), "twice.toml:1: source");
    let missing = place.run(&["tune", "/nonexistent/k.toml"]);
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("/nonexistent/k.toml"), "{}", missing.stderr);
    let device = place.run(&["tune", Path::new(&spec(&place)).to_str().unwrap(), "--device", "cuda"]);
    assert!(device.code == 2 && device.stderr.contains("--device cpu"), "{}", device.stderr);
}
