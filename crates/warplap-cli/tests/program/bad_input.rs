//! Bad input: one clear sentence that names the field and what was expected, exit 2, nothing changed.

use std::path::PathBuf;

use super::{Corner, Ended, SMALL, has, program};

/// Runs the program and holds it to the rule.
fn refused(place: &Corner, args: &[&str], names: &str) {
    let before = place.snapshot();
    let ended = place.run(args);
    let shown = format!("{args:?}: {}", ended.stderr);
    assert_eq!(ended.code, 2, "{shown}");
    assert!(ended.stdout.is_empty(), "{shown}");
    assert!(ended.stderr.contains(names) && ended.stderr.contains("expected"), "'{names}' is not named by {shown}");
    assert!(!ended.stderr.contains("panicked"), "{shown}");
    assert_eq!(place.snapshot(), before, "{args:?} changed the store");
}

#[test]
fn a_bad_problem_names_the_field() {
    let place = Corner::new();
    for (problem, names) in [
        ("gem:m=1,n=1,k=1", "'gem'"),
        ("m=1,n=1,k=1", "op:field=value"),
        ("gemm:m=16,n=16,kk=16", "'kk'"),
        ("gemm:m=16,n=16,k=16,dtpye=f32", "did you mean 'dtype'?"),
        ("gemm:m=16,n=16,k=16,dtype=f8", "'dtype'"),
        ("gemm:m=0,n=16,k=16", "'m'"),
        ("gemm:m=-1,n=16,k=16", "'m'"),
        ("gemm:m=16,n=99999999999999999999,k=16", "'n'"),
        ("gemm:m=1048576,n=1048576,k=1048576", "'m'"),
        ("gemm:m=16,n=16", "'k'"),
        ("gemm:m=16,m=16,n=16,k=16", "'m'"),
        ("gemm:m=16,n=16,k=16,lda=3", "'lda'"),
        ("gemm:", "'m'"),
    ] {
        for verb in ["tune", "bench", "explain", "regret", "variants"] {
            refused(&place, &[verb, problem], names);
        }
    }
    // One bad problem among good ones stops the run before anything is raced.
    refused(&place, &["tune", SMALL, "gemm:m=0,n=1,k=1"], "'m'");
}

#[test]
fn a_bad_sparse_problem_names_the_field() {
    if !has("bsr") {
        return;
    }
    let place = Corner::new();
    for (problem, names) in [
        ("bsr:m=100,k=64,n=8,bs=64,density=0.5", "'m'"),
        ("bsr:m=64,k=100,n=8,bs=64,density=0.5", "'k'"),
        ("bsr:m=64,k=64,n=8,bs=64,density=nan", "'density'"),
        ("bsr:m=64,k=64,n=8,bs=64,density=1.5", "'density'"),
        ("bsr_matmul:m=64,k=64,n=8,bs=0,density=0.5", "'bs'"),
    ] {
        refused(&place, &["tune", problem], names);
    }
}

#[test]
fn a_bad_option_names_itself() {
    let place = Corner::new();
    for (option, value) in [
        ("--budget", "0"),
        ("--budget", "nan"),
        ("--eps", "2"),
        ("--delta", "0"),
        ("--search", "magic"),
        ("--mode", "fast"),
        ("--bucket", "pow3"),
        ("--device", "gpu"),
        ("--device", "cuda:99"),
        ("--queue", "later"),
        ("--clock", "later"),
        ("--op", "gem"),
        ("--suite", "/nonexistent/suite.txt"),
    ] {
        refused(&place, &["tune", SMALL, option, value], option);
    }
    refused(&place, &["bench", SMALL, "--sweep", "m=9..1+1"], "--sweep");
    refused(&place, &["bench", SMALL, "--sweep", "q=1..2+1"], "'q'");
    refused(&place, &["bench", SMALL, "--variant", "nonesuch"], "'nonesuch'");
    refused(&place, &["bench", SMALL, "--variant", "reference", "--config", "mc=64"], "'mc'");
    refused(&place, &["bench", SMALL, "--variant", "reference", "--config", "mc"], "--config");
    refused(&place, &["bench", SMALL, "--variant", "library", "--config", "threads=4096"], "'threads'");
    refused(&place, &["store", "prune"], "--older-than");
    refused(&place, &["store", "show", "zz"], "RECORD");
}

#[test]
fn a_suite_names_the_line() {
    let place = Corner::new();
    let file = place.dir.path().join("suite.txt");
    std::fs::write(&file, format!("{SMALL}\ngemm:m=1,n=1,q=1\n")).unwrap();
    refused(&place, &["tune", "--suite", file.to_str().unwrap()], "line 2");
}

#[test]
fn a_broken_bundle_is_refused_whole() {
    let place = Corner::new();
    place.run(&["tune", SMALL, "--budget", "0.1", "-q"]);
    let good = place.dir.path().join("good.bundle");
    assert_eq!(place.run(&["store", "export", good.to_str().unwrap()]).code, 0);
    let bytes = std::fs::read(&good).unwrap();
    let empty = Corner::new();
    let mut flipped = bytes.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for (name, content) in
        [("cut", &bytes[..bytes.len() - 9]), ("flipped", &flipped), ("none", &b"hello"[..]), ("empty", &[])]
    {
        let path = empty.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        let path = path.to_str().unwrap();
        refused(&empty, &["store", "import", path], name);
        refused(&empty, &["store", "merge", good.to_str().unwrap(), path], name);
    }
    refused(&empty, &["store", "import", "/nonexistent.bundle"], "/nonexistent.bundle");
}

#[test]
fn a_refused_store_is_bad_input_for_its_own_verbs_and_a_warning_for_tune() {
    use std::os::unix::fs::PermissionsExt;
    let place = Corner::new();
    let open = place.dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let file = place.dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let link = place.dir.path().join("link");
    std::os::unix::fs::symlink(place.store(), &link).unwrap();
    let bundle = place.empty_bundle();
    let at = |path: &std::path::Path, args: &[&str]| Ended::of(program(path).args(args).output().unwrap());
    let before = place.snapshot();
    for path in [&open, &file, &link, &PathBuf::from("/proc/nonexistent")] {
        let verb: &[&str] = match path.starts_with("/proc") {
            true => &["store", "import", bundle.to_str().unwrap()],
            false => &["store", "ls"],
        };
        let ended = at(path, verb);
        assert_eq!(ended.code, 2, "{}: {}", path.display(), ended.stderr);
        assert!(ended.stderr.contains("--store") && ended.stderr.contains("expected"), "{}", ended.stderr);
    }
    assert_eq!(place.snapshot(), before);
    let tuned = at(&open, &["tune", SMALL, "--budget", "0.1", "--json", "-q"]);
    assert_eq!((tuned.code, tuned.lines().len()), (0, 1), "{}", tuned.stderr);
    assert!(tuned.stderr.contains("warning") && tuned.stderr.contains("memory only"), "{}", tuned.stderr);
    assert_eq!(std::fs::read_dir(&open).unwrap().count(), 0, "nothing is written into a refused directory");
}

#[test]
fn a_store_is_named_by_its_directory_or_by_a_url() {
    let place = Corner::new();
    let at = |url: &str, args: &[&str]| Ended::of(program(std::path::Path::new(url)).args(args).output().unwrap());
    let tune: &[&str] = &["tune", SMALL, "--budget", "0.1", "--json", "-q"];
    let url = format!("file://{}", place.store().display());
    assert_eq!(at(&url, tune).code, 0);
    let listed = at(&url, &["store", "ls", "--json"]);
    assert_eq!((listed.code, listed.lines().len()), (0, 1), "{}", listed.stderr);
    assert_eq!(at(place.store().to_str().unwrap(), &["store", "ls", "--json"]).stdout, listed.stdout);
    let before = place.snapshot();
    assert_eq!(at("memory:", tune).code, 0);
    assert_eq!(at("memory:", &["store", "ls", "--json"]).lines().len(), 0);
    for verb in [tune, &["store", "ls"], &["explain", SMALL]] {
        let ended = at("nosuch://host/x", verb);
        assert_eq!(ended.code, 2, "{verb:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("'nosuch:'") && ended.stderr.contains("file:, memory:"), "{}", ended.stderr);
        assert_eq!(at("file://elsewhere/x", verb).code, 2);
    }
    let urls = ["memory:x", "bundle:", "postgres://", "postgres://a@h:x/d", "postgres://a@h/d?sslmode=maybe"];
    for url in urls.iter().filter(|url| cfg!(feature = "fleet") || url.starts_with("memory")) {
        for verb in [tune, &["store", "ls"], &["explain", SMALL], &["tune", "--dry-run"]] {
            let ended = at(url, verb);
            assert_eq!(ended.code, 2, "{url} {verb:?}: {}", ended.stderr);
            assert!(ended.stderr.contains("--store") && ended.stderr.contains("expected"), "{url}: {}", ended.stderr);
        }
    }
    assert_eq!(place.snapshot(), before);
}

#[test]
fn messages_are_short_and_files_are_read_with_a_limit_whatever_is_put_in() {
    let place = Corner::new();
    let long = "x".repeat(100_000);
    let suite = place.dir.path().join("suite.txt");
    std::fs::write(&suite, format!("gemm:m={long}\n")).unwrap();
    let problem = format!("gemm:m={long},n=1,k=1");
    for args in [
        &["tune", &problem][..],
        &["tune", &long],
        &[&long],
        &["tune", SMALL, "--budget", &long],
        &["store", "show", &long],
        &["tune", "--suite", suite.to_str().unwrap()],
        &["tune", "--suite", "/dev/zero"],
        &["space", "/dev/zero"],
        &["space", suite.to_str().unwrap()],
    ] {
        let ended = place.run(args);
        assert_eq!(ended.code, 2, "{}: {}", &args[0][..4], ended.stderr);
        let longest = ended.stderr.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        // The word in front of it besides.
        assert!(longest <= 310 && ended.stderr.len() < 2000, "{longest}: {}", ended.stderr);
    }
}

#[test]
fn a_pipe_whose_other_end_has_gone_is_not_waited_for() {
    let (place, began) = (Corner::new(), std::time::Instant::now());
    for args in [&["store", "import", "/dev/stdin"][..], &["tune", "--suite", "/dev/stdin", "--dry-run"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        let ended = Ended::of(program(&place.store()).args(args).stdin(reader).output().unwrap());
        assert_eq!(ended.code, if args[0] == "store" { 2 } else { 0 }, "{}", ended.stderr);
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut export = program(&place.store());
    let ended = Ended::of(export.args(["store", "export", "/dev/stdout"]).stdout(writer).output().unwrap());
    assert_eq!((ended.code, &*ended.stderr), (0, ""));
    // 10 s each before.
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
}
