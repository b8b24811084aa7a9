//! Two machines and a real PostgreSQL, through the program: what one tunes the other answers without a race.

use std::path::Path;

use serde_json::Value;

use super::{Ended, SMALL, copy, program};

#[path = "../../../warplap-fleet/tests/fleet/server.rs"]
mod server;

use server::Server;

/// A machine of the fleet: a near store of its own.
struct Node {
    dir: tempfile::TempDir,
    url: String,
}

impl Node {
    fn new(server: &Server, database: &str) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("{}?near={}", server.url("owner", database), dir.path().join("store").display());
        Node { dir, url }
    }

    fn run(&self, args: &[&str]) -> Ended {
        Ended::of(program(Path::new(&self.url)).args(args).output().unwrap())
    }

    fn json(&self, args: &[&str]) -> Vec<Value> {
        let ended = self.run(&[args, &["--json"]].concat());
        assert_eq!(ended.code, 0, "{args:?}: {}{}", ended.stdout, ended.stderr);
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn what_one_machine_tunes_another_answers_without_a_race() {
    let server = Server::start();
    let database = server.empty();
    let (one, two) = (Node::new(&server, &database), Node::new(&server, &database));
    let early = one.run(&["fleet", "status"]);
    assert!(early.code == 1 && early.stderr.contains("fleet init"), "{}", early.stderr);
    assert_eq!(one.json(&["fleet", "init"])[0]["guarded"], true);
    for node in [&one, &two] {
        let joined = node.json(&["fleet", "join", "--node", "here"]);
        assert_eq!((&joined[0]["in"], joined[0]["origin"].as_str().unwrap().len()), (&Value::Bool(true), 16));
    }
    // Both know what their machine can reach: measuring it takes a second.
    let tuned = one.json(&["tune", SMALL, "--budget", "0.3"]);
    assert_eq!(tuned[0]["how"], "raced");
    copy(&one.dir.path().join("store/devices-v1"), &two.dir.path().join("store/devices-v1"));
    let answered = two.json(&["tune", SMALL]);
    assert_eq!(answered[0]["how"], "stored", "{}", answered[0]);
    assert_eq!(answered[0]["winner"], tuned[0]["winner"]);
    // What is wanted is tuned once by whoever gets to it, and then it is done.
    let wanted = "gemm:m=24,n=16,k=16,dtype=f32";
    assert_eq!(two.json(&["fleet", "want", wanted])[0]["wanted"], 1);
    let status = two.json(&["fleet", "status"]);
    assert_eq!(status[0]["wanted"].as_array().unwrap().len(), 1);
    let jobs = one.json(&["fleet", "tune", "--misses", "--device", "cpu", "--budget", "0.3"]);
    let ended = jobs.last().unwrap();
    assert_eq!((&ended["wanted"], &ended["done"], &ended["failed"]), (&1.into(), &1.into(), &0.into()), "{ended}");
    assert_eq!(one.json(&["fleet", "status"])[0]["wanted"].as_array().unwrap().len(), 0);
    let pulled = two.json(&["fleet", "sync"]);
    assert_eq!((&pulled[0]["added"], &pulled[0]["refused"]), (&1.into(), &0.into()), "{}", pulled[0]);
    assert_eq!(one.json(&["fleet", "trust", "ls"]).len(), 2);
    let page = one.dir.path().join("fleet.html");
    assert_eq!(one.json(&["fleet", "report", "-o", page.to_str().unwrap()])[0]["classes"], 1);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(["Classes</h2>", "Cards</h2>", "Machines</h2>"].iter().all(|part| page.contains(part)), "{page}");
    // What came from others is proved for those who only replay, and raced once more by who wants to know.
    let proved = two.json(&["fleet", "pull", "--prove", "--device", "cpu"]);
    assert!(proved.last().unwrap()["proved"].as_u64() >= Some(1), "{proved:?}");
    let checked = two.run(&["fleet", "check", "--share", "1", "--budget", "0.3", "--device", "cpu", "--json"]);
    assert!(!checked.lines().is_empty() && checked.lines()[0]["said"].is_string(), "{}", checked.stderr);
    assert!(!two.json(&["fleet", "devices"])[0]["cards"].as_array().unwrap().is_empty());
    // Bad input changes nothing and says what was expected.
    let bad = one.run(&["fleet", "trust", "add", "nobody"]);
    assert_eq!(bad.code, 1, "{}", bad.stderr);
}

#[test]
fn replay_opens_no_socket_and_a_far_store_that_is_down_costs_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://a:b@127.0.0.1:{port}/d?near={}", dir.path().join("store").display());
    let ended = Ended::of(program(Path::new(&url)).args(["tune", SMALL, "--mode", "replay"]).output().unwrap());
    assert_eq!(ended.code, 1, "the store knows nothing: {}", ended.stderr);
    assert!(listener.accept().is_err(), "replay has connected");
    drop(listener);
    let tuned = Ended::of(program(Path::new(&url)).args(["tune", SMALL, "--budget", "0.2"]).output().unwrap());
    assert_eq!(tuned.code, 0, "{}", tuned.stderr);
    assert!(tuned.stderr.contains("nothing is lost") && !tuned.stderr.contains(":b@"), "{}", tuned.stderr);
}
