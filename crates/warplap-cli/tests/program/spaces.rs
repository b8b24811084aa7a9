//! Spaces from files: counted, sampled, recorded and replayed.

use super::{Corner, SMALL};

fn committed(name: &str) -> String {
    format!("{}/../warplap-report/tests/spaces/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_replay_prints_a_line_a_repeat_with_its_improvements() {
    let place = Corner::new();
    let space = committed("recorded/pnpoly__RTX_3090");
    let args = ["replay", "--space", &space, "--search", "climb", "--budget", "60", "--repeats", "3", "--seed", "7"];
    let ended = place.run(&[&args[..], &["--json"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lines = ended.lines();
    assert_eq!(lines.len(), 3);
    for (n, line) in lines.iter().enumerate() {
        assert_eq!((line["seed"].as_u64(), line["trials"].as_u64()), (Some(7 + n as u64), Some(60)));
        let improvements = line["improvements"].as_array().unwrap();
        assert!(!improvements.is_empty() && line["score"].is_f64());
        for pair in improvements.windows(2) {
            assert!(pair[0][0].as_u64() < pair[1][0].as_u64() && pair[0][1].as_f64() > pair[1][1].as_f64());
        }
    }
    // The same seeds give the same lines, but for the time they took.
    let again = place.run(&[&args[..], &["--json"]].concat()).lines();
    assert!(lines.iter().zip(&again).all(|(a, b)| a["improvements"] == b["improvements"]));
    let shown = place.run(&args);
    assert!(shown.code == 0 && shown.stdout.contains("score") && shown.stdout.contains("random"), "{}", shown.stdout);
}

#[test]
fn a_recorded_space_of_an_own_kernel_can_be_replayed() {
    let place = Corner::new();
    let file = place.store().with_file_name("tiled.json");
    let file = file.to_str().unwrap();
    let record = ["record", SMALL, "-o", file, "--variant", "tiled", "--samples", "3", "--device", "cpu", "--json"];
    let ended = place.run(&record);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let line = ended.lines().remove(0);
    assert!(line["configs"].as_u64() > Some(1) && line["right"].as_u64() > Some(0), "{line}");
    let replayed = place.run(&["replay", "--space", file, "--repeats", "1", "--json"]).lines().remove(0);
    assert_eq!(replayed["trials"], line["configs"]);
    assert_eq!(replayed["best_over_optimum"].as_f64(), Some(1.0));
}

#[test]
fn a_space_is_counted_and_sampled() {
    let place = Corner::new();
    let ended = place.run(&["space", &committed("construct/atf_gaussian_pow2"), "--sample", "3", "--json"]);
    let lines = ended.lines();
    assert_eq!((ended.code, lines.len(), lines[0]["legal"].as_u64()), (0, 4, Some(149_281_440)));
    assert!(lines[1]["config"]["NUM_WI_L_1"].is_u64());
}

#[test]
fn a_bad_space_names_the_file_and_the_column() {
    let place = Corner::new();
    let file = place.store().with_file_name("bad.json");
    for (text, words) in [
        (
            r#"{"params": [{"name": "x", "values": [1, 2]}], "restrictions": ["x * y < 3"]}"#,
            ["no axis 'y'", "column 5"],
        ),
        (r#"{"params": [{"name": "x", "values": [1, 2]}], "restrictions": ["x > 2"]}"#, ["never true", "x > 2"]),
        (r#"{"params": [{"name": "x", "values": []}]}"#, ["no values", "'x'"]),
        ("[", ["does not define a space", "line 1"]),
    ] {
        std::fs::write(&file, text).unwrap();
        let ended = place.run(&["space", file.to_str().unwrap()]);
        assert_eq!(ended.code, 2, "{text}");
        assert!(
            words.iter().all(|w| ended.stderr.contains(w)) && ended.stderr.contains("bad.json"),
            "{}",
            ended.stderr
        );
    }
    let missing = place.run(&["replay", "--space", "/nowhere.json"]);
    assert!(missing.code == 2 && missing.stderr.contains("--space /nowhere.json"), "{}", missing.stderr);
}
