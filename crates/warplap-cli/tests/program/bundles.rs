//! Bundles between stores: signed, foreign, from pipes and into them.

use super::{Corner, SMALL};

#[test]
fn a_signed_bundle_goes_where_its_key_is_trusted() {
    let (there, here) = (Corner::new(), Corner::new());
    let path = |name: &str| there.dir.path().join(name).to_str().unwrap().to_string();
    assert_eq!(there.run(&["tune", SMALL, "--budget", "0.1", "-q"]).code, 0);
    let made = there.run(&["store", "keygen", &path("key")]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let key = made.stdout.trim();
    assert!(key.starts_with("warplap-key-ed25519:"), "{key}");
    assert_eq!(there.run(&["store", "keygen", &path("key")]).code, 2, "a key is never replaced");
    let signed = there.run(&["store", "export", &path("signed"), "--sign", &path("key")]);
    assert!(signed.code == 0 && signed.stdout.contains(key), "{}{}", signed.stdout, signed.stderr);
    assert_eq!(there.run(&["store", "export", &path("plain")]).code, 0);
    assert_eq!(there.run(&["store", "export", &path("x"), "--sign", &path("plain")]).code, 2);

    assert_eq!(here.run(&["store", "trust", "require"]).code, 0);
    for bundle in ["plain", "signed"] {
        let refused = here.run(&["store", "import", &path(bundle)]);
        assert!(refused.code == 2 && refused.stderr.contains("store trust"), "{}", refused.stderr);
    }
    assert_eq!(here.run(&["store", "trust", "add", "nonsense"]).code, 2);
    let added = here.run(&["store", "trust", "add", key, "--name", "the build farm"]);
    assert!(added.code == 0 && added.stdout.contains("the build farm"), "{}", added.stderr);
    let taken = here.run(&["store", "import", &path("signed")]);
    assert!(taken.code == 0 && taken.stdout.contains("1 added"), "{}{}", taken.stdout, taken.stderr);
    assert_eq!(here.run(&["store", "import", &path("plain")]).code, 2);
    let listed = here.run(&["store", "trust", "list", "--json"]).lines().remove(0);
    assert_eq!((listed["required"].as_bool(), listed["keys"][key].as_str()), (Some(true), Some("the build farm")));
    assert_eq!(here.run(&["store", "trust", "remove", key]).code, 0);
    assert_eq!(here.run(&["store", "trust", "remove", key]).code, 1);
    assert_eq!(here.run(&["store", "import", &path("signed")]).code, 2);
    assert_eq!(here.run(&["store", "trust", "require", "--off"]).code, 0);
    assert_eq!(here.run(&["store", "import", &path("plain")]).code, 0);
}

#[test]
fn a_record_that_was_raced_for_another_problem_than_its_keys_is_refused() {
    use warplap::core::store::bundle::Bundle;
    use warplap::core::store::{Checked, Store};
    let (there, here) = (Corner::new(), Corner::new());
    assert_eq!(there.run(&["tune", SMALL, "--budget", "0.1", "-q"]).code, 0);
    let store = Store::directory(&there.store()).unwrap();
    let Checked::Whole(mut record) = store.check(&store.entries()[0]) else { panic!("it is whole") };
    record.problem = "gemm:m=32,n=16,k=16,dtype=f32".into();
    let path = there.dir.path().join("bundle");
    Bundle::of_records([*record]).write(&path).unwrap();
    let import = here.run(&["store", "import", path.to_str().unwrap(), "--json"]);
    assert!(import.code == 0 && import.stderr.contains("another key"), "{}", import.stderr);
    let line = import.lines().remove(0);
    assert_eq!((line["added"].as_u64(), line["refused"].as_u64()), (Some(0), Some(1)), "{line}");
    // Nor does it answer straight from the file.
    let url = format!("bundle:{}", path.display());
    let replay = super::program(url.as_ref()).args(["tune", SMALL, "--mode", "replay", "--json"]).output().unwrap();
    assert!(String::from_utf8_lossy(&replay.stderr).contains("another key"), "{replay:?}");
}

#[test]
fn whoever_reads_while_a_signed_bundle_is_exported_anew_finds_a_signature_that_fits() {
    let (there, here) = (Corner::new(), Corner::new());
    let path = |name: &str| there.dir.path().join(name).to_str().unwrap().to_string();
    let key = there.run(&["store", "keygen", &path("key")]).stdout.trim().to_string();
    let sign = |name: &str| there.run(&["store", "export", &path(name), "--sign", &path("key"), "--name", name]);
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    assert_eq!((sign("b").code, here.run(&["store", "trust", "add", &key]).code), (0, 0));
    assert_eq!(there.run(&["tune", SMALL, "--budget", "0.1", "-q"]).code, 0);
    // As it stands after the first step, and after the second: both signatures, beside the old bundle and the new one.
    let (old_signature, old) = (read("b.minisig"), std::fs::read(path("b")).unwrap());
    assert_eq!(sign("b").code, 0);
    let both = format!("{old_signature}{}", read("b.minisig"));
    assert_ne!(read("b.minisig"), old_signature);
    std::fs::write(path("old"), old).unwrap();
    std::fs::copy(path("b"), path("new")).unwrap();
    for name in ["old", "new"] {
        std::fs::write(path(&format!("{name}.minisig")), &both).unwrap();
        let taken = here.run(&["store", "import", &path(name)]);
        assert_eq!(taken.code, 0, "{name}: {}", taken.stderr);
    }
    assert_eq!(read("b.minisig").lines().count(), 4, "one signature is left");
}

/// Bundles and the program minisign, in both directions. Takes a few seconds, most of them tuning.
#[test]
fn minisign_checks_our_signatures_and_its_own_are_taken_here() {
    use std::process::Command;
    if Command::new("minisign").arg("-v").output().is_err() {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"minisign is not installed: not tried\n");
        return;
    }
    let (there, here) = (Corner::new(), Corner::new());
    let path = |name: &str| there.dir.path().join(name).to_str().unwrap().to_string();
    let minisign = |args: &[&str]| Command::new("minisign").args(args).output().unwrap();
    assert_eq!(there.run(&["tune", SMALL, "--budget", "0.1", "-q"]).code, 0);
    let made = there.run(&["store", "keygen", &path("key"), "--json"]).lines().remove(0);
    let public = made["minisign"].as_str().unwrap();
    let export = ["store", "export", &path("b"), "--sign", &path("key"), "--serial", "5", "--expires", "30d"];
    assert_eq!(there.run(&export).code, 0);

    let good = minisign(&["-Vm", &path("b"), "-P", public]);
    let said = String::from_utf8_lossy(&good.stdout).to_string();
    assert!(good.status.success() && said.contains("serial=5") && said.contains("expires="), "{said}");
    assert!(minisign(&["-Vm", &path("b"), "-p", &path("key.pub")]).status.success());
    let mut bytes = std::fs::read(path("b")).unwrap();
    let last = bytes.len() - 1;
    bytes[last / 2] ^= 1;
    std::fs::write(path("changed"), &bytes).unwrap();
    std::fs::copy(path("b.minisig"), path("changed.minisig")).unwrap();
    assert!(!minisign(&["-Vm", &path("changed"), "-P", public]).status.success());

    // A key of minisign's own, and a bundle it signed.
    let own = minisign(&["-G", "-W", "-p", &path("own.pub"), "-s", &path("own.key")]);
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stderr));
    assert_eq!(there.run(&["store", "export", &path("theirs")]).code, 0);
    assert!(minisign(&["-Sm", &path("theirs"), "-s", &path("own.key")]).status.success());
    assert_eq!(here.run(&["store", "trust", "require"]).code, 0);
    assert_eq!(here.run(&["store", "import", &path("theirs")]).code, 2, "a stranger's");
    assert_eq!(here.run(&["store", "trust", "add", &path("own.pub")]).code, 0);
    let taken = here.run(&["store", "import", &path("theirs")]);
    assert!(taken.code == 0 && taken.stdout.contains("1 added"), "{}{}", taken.stdout, taken.stderr);
    assert_eq!(here.run(&["store", "trust", "add", public]).code, 0);
    assert_eq!(here.run(&["store", "import", &path("changed")]).code, 2);
    assert_eq!(here.run(&["store", "import", &path("b")]).code, 0);
}

#[test]
fn bundles_expire_go_forward_need_several_keys_and_fall_with_a_revoked_one() {
    let (there, here) = (Corner::new(), Corner::new());
    let path = |name: &str| there.dir.path().join(name).to_str().unwrap().to_string();
    assert_eq!(there.run(&["tune", SMALL, "--budget", "0.1", "-q"]).code, 0);
    let key = |name: &str| there.run(&["store", "keygen", &path(name)]).stdout.trim().to_string();
    let (one, two) = (key("one"), key("two"));
    let export = |file: &str, serial: &str| {
        let args = ["store", "export", &path(file), "--sign", &path("one"), "--serial", serial];
        assert_eq!(there.run(&args).code, 0);
    };
    export("new", "8");
    export("old", "7");
    for key in [&one, &two] {
        assert_eq!(here.run(&["store", "trust", "add", key]).code, 0);
    }
    assert_eq!(here.run(&["store", "import", &path("new")]).code, 0);
    let old = here.run(&["store", "import", &path("old")]);
    assert!(old.code == 2 && old.stderr.contains("--allow-older"), "{}", old.stderr);
    assert_eq!(here.run(&["store", "import", &path("old"), "--allow-older"]).code, 0);
    let brief = ["store", "export", &path("brief"), "--sign", &path("one"), "--expires", "1s"];
    assert_eq!(there.run(&brief).code, 0);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let expired = here.run(&["store", "import", &path("brief")]);
    assert!(expired.code == 2 && expired.stderr.contains("expired"), "{}", expired.stderr);
    for bad in ["0d", "d", "3", "30w", "99999d"] {
        assert_eq!(there.run(&["store", "export", &path("x"), "--expires", bad]).code, 2, "{bad}");
    }
    assert_eq!(here.run(&["store", "trust", "threshold", "2"]).code, 0);
    let one_of_two = here.run(&["store", "import", &path("new")]);
    assert!(one_of_two.code == 2 && one_of_two.stderr.contains("1 of the 2"), "{}", one_of_two.stderr);
    assert_eq!(there.run(&["store", "sign", &path("new"), &path("two")]).code, 0);
    assert_eq!(here.run(&["store", "import", &path("new")]).code, 0);
    assert_eq!(here.run(&["store", "trust", "revoke", &one]).code, 0);
    let listed = here.run(&["store", "trust", "ls"]);
    assert!(listed.stdout.contains("revoked") && listed.stdout.contains("2 must have signed"), "{}", listed.stdout);
    assert_eq!(here.run(&["store", "import", &path("old"), "--allow-older"]).code, 2);
    assert_eq!(here.run(&["store", "trust", "policy", "any"]).code, 2);
    assert_eq!(here.run(&["store", "trust", "policy", "signed"]).code, 0);
}

#[test]
fn what_was_proved_at_deployment_is_told() {
    let (there, here) = (Corner::new(), Corner::new());
    let file = there.dir.path().join("b").to_str().unwrap().to_string();
    assert_eq!(there.run(&["tune", SMALL, "--budget", "0.1", "-q", "--device", "cpu"]).code, 0);
    assert_eq!(there.run(&["store", "export", &file]).code, 0);
    let taken = here.run(&["store", "import", &file, "--prove", "--device", "cpu", "--json"]);
    let proved = taken.lines().pop().unwrap();
    assert_eq!((taken.code, proved["proved"].as_u64(), proved["failed"].as_u64()), (0, Some(1), Some(0)), "{proved}");
    let again = here.run(&["store", "verify", "--prove", "--device", "cpu"]);
    assert!(again.code == 0 && again.stdout.contains("1 winner proved"), "{}", again.stdout);
}

#[cfg(unix)]
mod odd_files {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::process::Command;
    use std::time::Instant;

    use super::super::{Corner, Ended, SMALL, program};

    fn pipe(path: &std::path::Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn bundles_go_through_pipes_and_devices_and_a_silent_pipe_is_not_waited_for() {
        let place = Corner::new();
        assert_eq!(place.run(&["tune", SMALL, "--budget", "0.1", "-q"]).code, 0);
        let path = place.dir.path().join("pipe");
        pipe(&path);
        let named = path.to_str().unwrap();
        let other = Corner::new();
        let (out, taken) = std::thread::scope(|scope| {
            let taken = scope.spawn(|| other.run(&["store", "import", named]));
            (place.run(&["store", "export", named]), taken.join().unwrap())
        });
        assert_eq!((out.code, taken.code), (0, 0), "{}{}", out.stderr, taken.stderr);
        assert!(taken.stdout.contains("1 added"), "{}", taken.stdout);
        assert!(std::fs::symlink_metadata(&path).unwrap().file_type().is_fifo(), "the pipe is still one");
        assert_eq!(place.run(&["store", "export", "/dev/null"]).code, 0);
        assert!(std::fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(place.run(&["report", SMALL, "--output", "/dev/null"]).code, 0);
        let full = place.run(&["store", "export", "/dev/full"]);
        assert!(full.code == 1 && full.stderr.contains("No space"), "{}: {}", full.code, full.stderr);
        let begun = Instant::now();
        let silent = place.run(&["store", "import", named]);
        assert!(silent.code == 2 && silent.stderr.contains("nobody wrote"), "{}", silent.stderr);
        assert!(begun.elapsed().as_secs() < 60);
    }

    #[test]
    fn what_is_no_file_in_a_records_place_is_named_and_pruned() {
        let place = Corner::new();
        assert_eq!(place.run(&["tune", SMALL, "--budget", "0.1", "-q"]).code, 0);
        let record = place.snapshot().into_keys().find(|p| p.to_str().unwrap().contains("records-v1")).unwrap();
        let beside = |digit: &str| record.with_file_name(format!("{}.json", digit.repeat(32)));
        symlink(&record, beside("a")).unwrap();
        pipe(&beside("b"));
        std::fs::create_dir_all(beside("c").join("deep")).unwrap();
        let result = place.run(&["store", "verify"]);
        assert_eq!(result.code, 1, "{}", result.stdout);
        for digit in ["a", "b", "c"] {
            assert!(result.stdout.contains(&digit.repeat(32)), "{digit}: {}", result.stdout);
        }
        let pruned = place.run(&["store", "prune", "--damaged"]);
        assert_eq!(pruned.code, 0, "{}", pruned.stderr);
        let after = place.run(&["store", "verify"]);
        assert!(after.code == 0 && after.stdout.contains("1 record whole"), "{}", after.stdout);
    }

    #[test]
    fn a_limit_on_files_costs_the_record_and_not_the_answer() {
        let place = Corner::new();
        let limited = |args: &str| {
            let program = env!("CARGO_BIN_EXE_warplap");
            let line = format!("ulimit -f 1; exec {program} --store {} {args}", place.store().display());
            Ended::of(Command::new("sh").args(["-c", &line]).output().unwrap())
        };
        let tuned = limited(&format!("tune {SMALL} --budget 0.1 --json"));
        assert_eq!(tuned.code, 0, "{}", tuned.stderr);
        assert!(tuned.stdout.contains("winner") && tuned.stderr.contains("ulimit"), "{}", tuned.stderr);
        assert_eq!(place.run(&["tune", SMALL, "--budget", "0.1", "-q"]).code, 0);
        let bundle = place.dir.path().join("bundle").to_str().unwrap().to_string();
        assert_eq!(place.run(&["store", "export", &bundle]).code, 0);
        let other = Corner::new();
        let line = format!("ulimit -f 1; exec {:?} store import {bundle}", program(&other.store()).get_program());
        let mut command = Command::new("sh");
        command.args(["-c", &line]).env("WARPLAP_STORE", other.store());
        let import = Ended::of(command.output().unwrap());
        assert!(import.code == 1 && import.stderr.contains("importing again goes on"), "{}", import.stderr);
    }

    #[test]
    fn no_control_character_reaches_the_terminal() {
        let place = Corner::new();
        for odd in ["\u{9b}31m", "\x1b[2J", "\u{202e}x", "\x07"] {
            for args in [vec!["tune", odd], vec!["store", "show", odd], vec![odd], vec!["tune", SMALL, "--budget", odd]]
            {
                let ended = place.run(&args);
                assert_ne!(ended.code, 0);
                let said = ended.stdout + &ended.stderr;
                assert!(!said.contains(['\u{9b}', '\x1b', '\u{202e}', '\x07']), "{args:?}: {said:?}");
            }
        }
    }
}
