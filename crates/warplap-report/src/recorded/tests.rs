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
fn our_own_form_cut_anywhere_gives_back_the_configs_whose_times_are_there() {
    let whole = Recorded::parse(CACHEFILE).unwrap();
    let text = whole.to_text();
    let short = Recorded::parse(&text[..text.len() - 1]).unwrap();
    assert!(short.torn && short.len() == whole.len());
    let times = text.find("\"time_ms\":[").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for cut in 0..text.len() {
        match Recorded::parse(&text[..cut]) {
            Ok(read) => {
                assert!(read.torn && cut > times, "{cut}");
                for i in 0..read.len() {
                    let same = (0..whole.len()).find(|j| whole.point(*j) == read.point(i)).unwrap();
                    assert_eq!(read.time_ms(i).ok(), whole.time_ms(same).ok(), "{cut}");
                }
                seen.insert(read.len());
            }
            Err(why) => assert!(cut < times + 20, "{cut}: {why}"),
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn odd_files_are_refused_by_name_or_read_as_what_they_mean() {
    let form =
        |params: &str, more: &str| format!(r#"{{"params": [{params}], "configs": [[0, 0]], "time_ms": [1.0]{more}}}"#);
    let (x, y) = (r#"{"name": "x", "values": [1]}"#, r#"{"name": "y", "values": [1]}"#);
    let twice = Recorded::parse(&form(&format!("{x}, {x}"), "")).unwrap_err().to_string();
    assert!(twice.contains("'x' is there twice"), "{twice}");
    let twice = Recorded::definition(&format!(r#"{{"params": [{x}, {x}]}}"#)).unwrap_err().to_string();
    assert!(twice.contains("'x' is there twice"), "{twice}");
    let keys =
        r#"{"tune_params_keys": ["x", "x"], "tune_params": {"x": [1]}, "cache": {"1,1": {"x": 1, "time": 1.0}}}"#;
    assert!(Recorded::parse(keys).unwrap_err().to_string().contains("'x' is there twice"));
    let both = format!("{x}, {y}");
    assert!(Recorded::parse(&form(&both, r#", "restrictions": null, "status": null, "device": null"#)).is_ok());
    for time in ["1e300", "-1.0", "0.0", "null"] {
        let read = Recorded::parse(&form(&both, "").replace("1.0", time)).unwrap();
        assert_eq!(read.times().count(), 0, "{time}");
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
    for name in warplap_core::search::NAMES {
        let brief = warplap_core::search::Brief { seed: 2, ..Default::default() };
        let short = replay(&recorded, name, 40, &brief).unwrap();
        assert_eq!(short.trials, 40, "{name}");
        let whole = replay(&recorded, name, 1000, &brief).unwrap();
        assert_eq!((whole.trials, whole.failures), (300, 300 - recorded.times().count()), "{name}");
        assert_eq!(whole.curve.best_at(300), Some(1.0), "{name}");
    }
    assert!(replay(&recorded, "nonesuch", 1, &warplap_core::search::Brief::default()).is_none());
}
