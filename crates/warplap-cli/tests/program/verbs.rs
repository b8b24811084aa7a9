//! Every verb once, and what `tune` promises.

use super::{Corner, Ended, SMALL, program};

#[test]
fn a_tune_line_has_its_fields_and_a_second_tune_measures_nothing() {
    let place = Corner::new();
    let first = place.run(&["tune", SMALL, "--json", "--budget", "1"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let line = first.lines().remove(0);
    for field in [
        "op",
        "problem",
        "key",
        "device",
        "mode",
        "from_store",
        "winner",
        "median_us",
        "ci_us",
        "tflops",
        "roofline_fraction",
        "grade",
        "tie",
        "trials",
        "launches",
        "seconds",
        "skipped",
        "speedup_reference",
        "speedup_library",
    ] {
        assert!(line.get(field).is_some(), "{field} is missing in {line}");
    }
    assert_eq!((line["op"].as_str(), line["problem"].as_str()), (Some("gemm"), Some(SMALL)));
    assert_eq!((line["mode"].as_str(), line["from_store"].as_bool()), (Some("tune"), Some(false)));
    assert!(line["winner"]["variant"].is_string() && line["winner"]["config"].is_object());
    let (low, high) = (line["ci_us"][0].as_f64().unwrap(), line["ci_us"][1].as_f64().unwrap());
    let median = line["median_us"].as_f64().unwrap();
    assert!(0.0 < low && low <= median && median <= high, "{line}");
    assert!(line["launches"].as_u64().unwrap() > 0 && line["seconds"].as_f64().unwrap() > 0.0);
    for trial in line["trials"].as_array().unwrap() {
        assert!(trial["median_us"].is_f64() || trial["rejection"].is_string(), "{trial}");
    }

    // The winner stands first and nobody is shown faster; everyone has a gap to it.
    let timed: Vec<_> = line["trials"].as_array().unwrap().iter().filter(|t| t["median_us"].is_f64()).collect();
    assert_eq!(timed[0]["variant"], line["winner"]["variant"]);
    assert!(timed.iter().all(|t| t["median_us"].as_f64() >= Some(median) && t["behind"]["by"].as_f64() >= Some(0.0)));

    let before = place.snapshot();
    let second = place.run(&["tune", SMALL, "--json"]);
    let again = second.lines().remove(0);
    assert_eq!((again["from_store"].as_bool(), again["launches"].as_u64()), (Some(true), Some(0)));
    assert_eq!(again["winner"], line["winner"]);
    assert_eq!(place.snapshot(), before);
}

#[test]
fn the_table_names_the_winner_and_where_it_came_from() {
    let place = Corner::new();
    let tuned = place.run(&["tune", SMALL, "--budget", "0.5"]);
    assert_eq!(tuned.code, 0, "{}", tuned.stderr);
    for word in ["winner", "vs reference", "vs library", "roofline", "wrong", "skipped", "grade", "m16 n16 k16 f32"] {
        assert!(tuned.stdout.contains(word), "{word} is missing in\n{}", tuned.stdout);
    }
    assert!(tuned.stdout.contains("1 raced"));
    let known = place.run(&["tune", SMALL, "--mode", "replay"]);
    assert!(known.stdout.contains("0 raced with 0 launches, 1 from the store"), "{}", known.stdout);
}

#[test]
fn a_live_page_is_whole_while_the_race_runs_and_ends_with_the_verdict() {
    let corner = Corner::new();
    let page = corner.dir.path().join("race.html");
    let live = format!("--live={}", page.display());
    let problem = "gemm:m=512,n=512,k=512,dtype=f32";
    let mut racing = program(&corner.store());
    racing.args(["tune", problem, "--budget", "120", "-q", &live]).stdout(std::process::Stdio::null());
    let mut racing = racing.spawn().unwrap();
    let (mut seen, mut ended) = (0, None);
    while ended.is_none() {
        ended = racing.try_wait().unwrap();
        let text = std::fs::read_to_string(&page).unwrap_or_default();
        assert!(text.is_empty() || text.trim_end().ends_with("</html>"), "a page is written whole or not at all");
        seen += usize::from(ended.is_none() && text.contains("\"live\":true"));
        if seen == 10 {
            let pid = rustix::process::Pid::from_child(&racing);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    racing.wait().unwrap();
    assert!(ended.is_some_and(|e| matches!(e.code(), Some(0 | 130))) && seen > 0, "nobody could watch: {ended:?}");
    let text = std::fs::read_to_string(&page).unwrap();
    let winner = corner.run(&["tune", problem, "--mode", "replay", "--json"]).lines().remove(0)["winner"].clone();
    assert!(text.contains("\"live\":false") && text.contains(winner["variant"].as_str().unwrap()));
}

#[test]
fn a_dry_run_counts_candidates_and_makes_no_store() {
    let place = Corner::new();
    let before = place.snapshot();
    let dry = place.run(&["tune", "--dry-run", "--json"]);
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    let lines = dry.lines();
    assert!(lines.len() >= 7 && lines.iter().all(|l| l["candidates"].as_u64().unwrap() > 0 && l["known"] == false));
    assert_eq!(place.snapshot(), before);
}

#[test]
fn replay_answers_from_the_store_or_says_that_it_cannot() {
    let place = Corner::new();
    let missed = place.run(&["tune", SMALL, "--mode", "replay", "--json"]);
    assert_eq!(missed.code, 1);
    assert!(missed.lines()[0]["median_us"].is_null());
    assert_eq!(place.run(&["tune", SMALL, "--mode", "record", "--json"]).code, 0);
    let stats = place.run(&["store", "stats", "--json"]).lines().remove(0);
    assert_eq!((stats["misses"].as_u64(), stats["records"].as_u64()), (Some(1), Some(0)));
    let tuned = place.run(&["tune", "--misses", "--json", "--budget", "0.2"]);
    assert_eq!((tuned.code, tuned.lines().len()), (0, 1), "{}", tuned.stderr);
    let hit = place.run(&["tune", SMALL, "--mode", "replay", "--json"]);
    assert_eq!((hit.code, hit.lines()[0]["from_store"].as_bool()), (0, Some(true)));
}

#[test]
fn a_suite_file_is_read_line_by_line() {
    let place = Corner::new();
    let file = place.dir.path().join("suite.txt");
    std::fs::write(&file, format!("# two\n{SMALL}\n\nm=8,n=8,k=8 # with --op\n")).unwrap();
    let args = ["tune", "--suite", file.to_str().unwrap(), "--op", "gemm", "--json", "--budget", "0.1"];
    let tuned = place.run(&args);
    assert_eq!((tuned.code, tuned.lines().len()), (0, 2), "{}", tuned.stderr);
}

#[test]
fn bench_sweeps_one_field_in_every_form() {
    let place = Corner::new();
    let swept = ["bench", SMALL, "--variant", "reference", "--sweep", "m=8..32*2", "--samples", "5"];
    let json = place.run(&[&swept[..], &["--json"]].concat());
    assert_eq!((json.code, json.lines().len()), (0, 3), "{}", json.stderr);
    assert!(json.lines().iter().all(|l| l["median_us"].as_f64().unwrap() > 0.0 && l["error"].as_f64().unwrap() <= 1.0));
    let csv = place.run(&[&swept[..], &["--csv"]].concat());
    assert_eq!(csv.stdout.lines().count(), 4);
    assert!(csv.stdout.starts_with("problem,variant,config,median_us"));
    let every = place.run(&["bench", SMALL, "--samples", "3"]);
    assert!(every.stdout.contains("reference") && every.stdout.contains("library"), "{}", every.stdout);
}

#[test]
fn explain_says_why_and_what_was_missed() {
    let place = Corner::new();
    let missed = place.run(&["explain", SMALL]);
    assert_eq!(missed.code, 1);
    assert!(missed.stdout.contains("miss") && missed.stdout.contains("warplap tune"), "{}", missed.stdout);
    place.run(&["tune", SMALL, "--budget", "0.3", "-q"]);
    let said = place.run(&["explain", SMALL]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    for word in ["lookup", "exact", "winner", "samples", "decided", "kind=general"] {
        assert!(said.stdout.contains(word), "{word} is missing in\n{}", said.stdout);
    }
    let line = place.run(&["explain", SMALL, "--json"]).lines().remove(0);
    assert!(line["matched"].as_str().unwrap().starts_with("exact") && line["record"]["editions"].is_array());
}

#[test]
fn regret_compares_the_buckets_winner_with_the_exact_one() {
    let place = Corner::new();
    let regret = place.run(&["regret", "gemm:m=13,n=9,k=20", "--bucket", "pow2", "--budget", "0.5", "--json"]);
    assert_eq!(regret.code, 0, "{}", regret.stderr);
    let line = regret.lines().remove(0);
    assert_eq!(line["representative"].as_str(), Some("gemm:m=16,n=16,k=32,dtype=f32"));
    assert!(line["ratio"].as_f64().unwrap() > 0.0);
}

#[test]
fn devices_doctor_variants_and_completions_answer() {
    let place = Corner::new();
    let devices = place.run(&["devices", "--json"]).lines().remove(0);
    assert!(devices["threads"].as_u64().unwrap() > 0 && devices["ceilings"].is_object(), "{devices}");
    let doctor = place.run(&["doctor", "--json"]);
    assert_eq!(doctor.code, 0, "{}", doctor.stdout);
    let names: Vec<String> = doctor.lines().iter().map(|l| l["check"].as_str().unwrap().to_string()).collect();
    for check in ["clock", "noise floor", "other load", "store", "rights", "file system", "ceilings", "cuda"] {
        assert!(names.iter().any(|n| n == check), "{check} is missing in {names:?}");
    }
    let variants = place.run(&["variants", SMALL, "--json"]).lines();
    assert!(variants.iter().any(|v| v["reference"] == true) && variants.iter().any(|v| v["library"] == true));
    assert!(place.run(&["variants"]).stdout.contains("gemm"));
    assert!(place.run(&["completions", "bash"]).stdout.contains("warplap"));
}

#[test]
fn devices_doctor_and_variants_name_the_blas_library_or_why_there_is_none() {
    let place = Corner::new();
    let run = |args: &[&str], blas: &str| {
        Ended::of(program(&place.store()).env("WARPLAP_BLAS", blas).args(args).output().unwrap())
    };
    let devices = run(&["devices", "--json"], "off").lines().remove(0);
    assert_eq!(devices["blas"], serde_json::json!([]), "{devices}");
    let doctor = run(&["doctor", "--json"], "off").lines();
    let blas = doctor.iter().find(|l| l["check"] == "blas").expect("a line of its own");
    assert!(blas["state"] == "note" && blas["found"].as_str().unwrap().contains("WARPLAP_BLAS=off"), "{blas}");
    let variants = run(&["variants", SMALL, "--json"], "off").lines();
    let blas = variants.iter().find(|v| v["variant"] == "blas").unwrap_or_else(|| panic!("{variants:?}"));
    assert!(blas.to_string().contains("WARPLAP_BLAS=off"), "{blas}");
    // Named, it is shown by its path; what cannot be loaded is said, and nothing else is harmed.
    let this = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir_in(this.parent().unwrap()).unwrap();
    let broken = folder.path().join("libopenblas.so.0");
    std::fs::write(&broken, b"\x7fELF and no more").unwrap();
    let named = broken.to_str().unwrap();
    let devices = run(&["devices", "--json"], named).lines().remove(0);
    assert_eq!((&devices["blas"][0]["library"], devices["blas"].as_array().unwrap().len()), (&"openblas".into(), 1));
    let doctor = run(&["doctor", "--json"], named);
    let said = doctor.lines().into_iter().find(|l| l["check"] == "blas").expect("a line of its own");
    assert!(doctor.code == 0 && said["found"].as_str().unwrap().contains("too short"), "{said}");
    let tuned = run(&["tune", SMALL, "--budget", "0.2", "-q"], named);
    assert_eq!(tuned.code, 0, "{}", tuned.stderr);
}

#[test]
fn the_store_lists_shows_checks_exchanges_and_forgets() {
    let place = Corner::new();
    place.run(&["tune", SMALL, "gemm:m=8,n=8,k=8", "--budget", "0.1", "-q"]);
    let list = place.run(&["store", "ls", "--json"]).lines();
    assert_eq!(list.len(), 2);
    assert!(list.iter().all(|l| l["winner"]["variant"].is_string()));
    assert_eq!(place.run(&["store", "ls", "--short", "--json"]).lines().len(), 2);
    assert!(place.run(&["store", "ls"]).stdout.contains(SMALL));
    let hash = list[0]["hash"].as_str().unwrap();
    let shown = place.run(&["store", "show", &hash[..8], "--json"]).lines().remove(0);
    assert_eq!(shown["key"], list[0]["key"]);
    assert_eq!(place.run(&["store", "show", SMALL]).code, 0);
    let verified = place.run(&["store", "verify", "--json"]);
    assert_eq!((verified.code, verified.lines()[0]["ok"].as_u64()), (0, Some(2)));

    let bundle = place.dir.path().join("all.bundle");
    let bundle = bundle.to_str().unwrap();
    assert_eq!(place.run(&["store", "export", bundle, "--json"]).lines()[0]["records"], 2);
    let other = Corner::new();
    assert_eq!(other.run(&["store", "import", bundle, "--json"]).lines()[0]["added"], 2);
    assert_eq!(other.run(&["store", "merge", bundle, "--json"]).lines()[0]["unchanged"], 2);
    let merged = other.dir.path().join("merged.bundle");
    let store = place.store();
    let args = ["store", "merge", bundle, store.to_str().unwrap(), "--into", merged.to_str().unwrap(), "--json"];
    assert_eq!(other.run(&args).lines()[0]["records"], 2);
    assert_eq!(std::fs::read(bundle).unwrap(), std::fs::read(&merged).unwrap());

    assert_eq!(other.run(&["store", "rm", SMALL, "--json"]).lines()[0]["removed"], true);
    assert_eq!(other.run(&["store", "prune", "--keep", "0", "--dry-run", "--json"]).lines().len(), 2);
    assert_eq!(other.run(&["store", "prune", "--keep", "0"]).code, 0);
    assert!(other.run(&["store", "ls", "--json"]).lines().is_empty());
}

#[test]
fn a_damaged_record_fails_the_check_and_costs_its_key_alone() {
    let place = Corner::new();
    place.run(&["tune", SMALL, "gemm:m=8,n=8,k=8", "--budget", "0.1", "-q"]);
    let victim = place.snapshot().into_keys().find(|p| p.to_string_lossy().contains("records-v1")).unwrap();
    std::fs::write(&victim, "{}").unwrap();
    let verified = place.run(&["store", "verify", "--json"]);
    assert_eq!(verified.code, 1);
    assert_eq!(verified.lines().last().unwrap()["damaged"], 1);
    assert_eq!(place.run(&["store", "prune", "--damaged"]).code, 0);
    assert_eq!(place.run(&["store", "verify"]).code, 0);
}

#[cfg(unix)]
#[test]
fn vllm_is_handed_to_python_with_its_arguments_and_its_exit_code() {
    use std::os::unix::fs::PermissionsExt;

    let place = Corner::new();
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python");
    std::fs::write(&python, "#!/bin/sh\n[ \"$1\" = -c ] && exit ${LACKS:-0}\necho \"$@\"\nexit 2\n").unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = |python: &std::path::Path, lacks: &str, args: &[&str]| {
        let mut command = program(&place.store());
        Ended::of(command.env("WARPLAP_PYTHON", python).env("LACKS", lacks).args(args).output().unwrap())
    };
    let ended = run(&python, "0", &["vllm", "tune", "model", "--tp", "2", "--help"]);
    assert_eq!((ended.code, ended.stdout.trim()), (2, "-m warplap.vllm tune model --tp 2 --help"));
    let ended = run(&python, "1", &["vllm", "check"]);
    assert!(ended.code == 1 && ended.stderr.contains("pip install warplap vllm"), "{}", ended.stderr);
    let ended = run(&folder.path().join("nobody"), "0", &["vllm", "check"]);
    assert!(ended.code == 1 && ended.stderr.contains("cannot be started"), "{}", ended.stderr);
}
