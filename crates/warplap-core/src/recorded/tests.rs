use super::*;

const CACHEFILE: &str = r#"{
"device_name": "a card", "kernel_name": "k", "problem_size": 9,
"tune_params_keys": ["x", "mode"], "tune_params": {"x": [1, 2, 4], "mode": ["a", "b"]}, "objective": "time",
"cache": {
"1,a": {"x": 1, "mode": "a", "time": 3.5, "times": [3.4, 3.6], "GFLOP/s": NaN},
"2,a": {"x": 2, "mode": "a", "time": "CompilationFailedConfig"},
"4,b": {"x": 4, "mode": "b", "time": 1.25},
"2,b": {"x": 2, "mode": "b", "time": 1e20},"#;

#[test]
fn a_cachefile_that_ends_anywhere_gives_back_every_whole_record() {
    let open = Recorded::parse(CACHEFILE).unwrap();
    assert!(open.torn && open.len() == 4 && open.device == "a card" && open.kernel == "k");
    assert_eq!(open.times().collect::<Vec<_>>().len(), 2);
    assert_eq!(open.best(1), [Config::new().with("x", 4).with("mode", "b")]);
    let cut = CACHEFILE.find("\"4,b\"").unwrap() + 12;
    assert_eq!(Recorded::parse(&CACHEFILE[..cut]).unwrap().len(), 2);
    let closed = format!("{}}}}}", CACHEFILE.trim_end_matches(','));
    let closed = Recorded::parse(&closed).unwrap();
    assert!(!closed.torn && closed.len() == 4);
}

#[test]
fn t4_results_are_read_whole_or_torn() {
    let text = r#"{"schema_version": "1.0.0", "results": [
      {"configuration": {"x": 1, "y": true}, "times": {"runtimes": [2.0, 4.0]}, "invalidity": "correct", "correctness": 1},
      {"configuration": {"x": 2, "y": true}, "times": {}, "invalidity": "runtime", "correctness": 0},
      {"configuration": {"x": 3, "y": false}, "objectives": ["time"], "times": {}, "invalidity": "correct",
       "correctness": 1, "measurements": [{"name": "power", "value": 9}, {"name": "time", "value": 2.5, "unit": "ms"}]}
    ]}"#;
    let read = Recorded::parse(text).unwrap();
    assert_eq!((read.len(), read.torn), (3, false));
    assert_eq!(read.best(9), [Config::new().with("x", 3).with("y", false), Config::new().with("x", 1).with("y", true)]);
    let torn = Recorded::parse(&text[..text.len() - 60]).unwrap();
    assert_eq!((torn.len(), torn.torn), (2, true));
}

#[test]
fn our_own_form_reads_back_what_it_writes() {
    let read = Recorded::parse(CACHEFILE).unwrap();
    let again = Recorded::parse(&read.to_text()).unwrap();
    assert_eq!(again.len(), read.len());
    for i in 0..read.len() {
        assert_eq!((again.point(i), again.time_ms(i)), (read.point(i), read.time_ms(i)));
    }
}

#[test]
fn what_is_no_recorded_space_is_answered_with_what_was_expected() {
    for (text, word) in [
        ("", "not a recorded space"),
        ("{}", "expected 'params'"),
        (r#"{"params": [], "configs": [], "time_ms": []}"#, "no measured config"),
        (r#"{"params": [{"name": "x", "values": [1]}], "configs": [[0]], "time_ms": []}"#, "as many"),
        (r#"{"params": [{"name": "x", "values": [1]}], "configs": [[7]], "time_ms": [1.0]}"#, "row 0"),
        (r#"{"tune_params_keys": ["x"], "cache": []}"#, "'cache'"),
        (r#"{"results": 3}"#, "'results'"),
    ] {
        let error = Recorded::parse(text).unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
    let unknown = Recorded::definition(r#"{"params": [{"name": "x", "values": [1]}], "restrictions": ["y > 1"]}"#);
    assert!(unknown.unwrap_err().to_string().contains("no axis 'y'"));
}

#[test]
fn every_search_replays_within_its_budget_and_finds_what_there_is() {
    let rows = (0..300u16).map(|i| {
        let (x, y) = (i % 20, i / 20);
        let time = 1.0 + f64::from(x.abs_diff(13)) + f64::from(y.abs_diff(4)) * 0.5;
        Row { point: vec![x, y], time_ms: if i % 11 == 3 { Err("failed".into()) } else { Ok(time) } }
    });
    let axes = vec![Axis::ints("x", 0..20), Axis::ints("y", 0..15)];
    let recorded = Recorded::new(axes, rows.collect()).unwrap();
    for name in crate::search::NAMES {
        let brief = crate::search::Brief { seed: 2, ..Default::default() };
        let short = replay(&recorded, name, 40, &brief).unwrap();
        assert_eq!(short.trials, 40, "{name}");
        let whole = replay(&recorded, name, 1000, &brief).unwrap();
        assert_eq!((whole.trials, whole.failures), (300, 300 - recorded.times().count()), "{name}");
        assert_eq!(whole.curve.best_at(300), Some(1.0), "{name}");
    }
    assert!(replay(&recorded, "nonesuch", 1, &crate::search::Brief::default()).is_none());
}
