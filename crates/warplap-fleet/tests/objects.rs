//! Bundles that are objects, from real servers: Python's web server, and with `WARPLAP_LONG` one that speaks S3 (moto, in
//! an environment that is made once). Takes about ten seconds. The processes that open are children: where copies lie,
//! and who may read a bucket, are settings of a process.
#![cfg(feature = "objects")]

#[path = "../../warplap-store/tests/support/mod.rs"]
mod store_support;

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use store_support::*;
use warplap_core::store::bundle::{Bundle, Claims};
use warplap_core::store::{Match, SecretKey, Store};

const RECORDS: u64 = 200;

/// A server that ends with its test.
struct Server(Child, u16);

impl Server {
    fn start(python: &Path, module: &[&str], dir: &Path) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(python);
        for word in module {
            command.arg(word.replace("PORT", &port.to_string()));
        }
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server(command.spawn().unwrap(), port);
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "no server after a minute");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn web(dir: &Path) -> Server {
        Server::start(Path::new("python3"), &["-m", "http.server", "--bind", "127.0.0.1", "PORT"], dir)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A bundle whose winners say which one it is, and its signature.
fn made(serial: u64, signer: &SecretKey) -> (Vec<u8>, String) {
    let winner = |n| (serial * 1000 + n) as i64;
    let records = (0..RECORDS).map(|n| record(&key(n), &device(1), edition("origin0000000001", 100 + n, winner(n))));
    let mut bundle = Bundle::of_records(records);
    bundle.claims = Claims { name: "all".into(), serial: Some(serial), expires: None };
    let bytes = bundle.to_bytes();
    let signature = Bundle::sign(&bytes, signer).unwrap().to_string();
    (bytes, signature)
}

fn put(dir: &Path, serial: u64, signer: &SecretKey) {
    let (bytes, signature) = made(serial, signer);
    std::fs::write(dir.join("b.minisig"), signature).unwrap();
    std::fs::write(dir.join("b"), bytes).unwrap();
    // A web server goes by whole seconds: two bundles of one second would be the same to it.
    let at = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + serial * 60);
    std::fs::File::options().write(true).open(dir.join("b")).unwrap().set_modified(at).unwrap();
}

/// What a process that opens the URL finds: the serial of the bundle, or why there is none.
fn opened(test: &str, url: &str, home: &Path, with: &[(&str, &str)]) -> String {
    let ended = opening(test, url, home, with).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).to_string();
    let line = said.lines().find_map(|l| l.split_once("FOUND ")).map(|(_, result)| result.to_string());
    line.unwrap_or_else(|| panic!("{said}\n{}", String::from_utf8_lossy(&ended.stderr)))
}

fn opening(test: &str, url: &str, home: &Path, with: &[(&str, &str)]) -> Child {
    let mut child = child(test, "open", &[("URL", url)]);
    child.env("HOME", home).env("XDG_CACHE_HOME", home.join("cache")).env_remove("WARPLAP_STORE");
    child.envs(with.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn open() {
    warplap_fleet::register();
    let result = match Store::open(setting("URL")) {
        Err(e) => format!("error {e}"),
        Ok(store) => match store.lookup(&key(7), &device(1)) {
            Match::Exact(record) => format!("{}", winner(&record) / 1000),
            other => format!("{other:?}"),
        },
    };
    say(std::io::stdout(), format!("FOUND {result}"));
}

#[test]
fn an_object_is_fetched_once_and_again_when_it_has_changed() {
    const TEST: &str = "an_object_is_fetched_once_and_again_when_it_has_changed";
    if part().is_some() {
        return open();
    }
    let (served, home, signer, other) =
        (temp(), temp(), SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    put(served.path(), 1, &signer);
    let server = Server::web(served.path());
    let url =
        |refresh: &str| format!("bundle:http://127.0.0.1:{}/b?key={}&refresh={refresh}", server.1, signer.public());
    let result = |refresh: &str| opened(TEST, &url(refresh), home.path(), &[]);
    assert_eq!(result("never"), "1");
    put(served.path(), 2, &signer);
    assert_eq!((result("3600"), result("never")), ("1".into(), "1".into()), "the copy is young, or good for ever");
    assert_eq!((result("0"), result("0"), result("never")), ("2".into(), "2".into(), "2".into()), "it was asked again");
    // What another signed, what is older and what is torn replaces nothing, and is no answer where nothing is there.
    put(served.path(), 3, &other);
    assert_eq!(result("0"), "2");
    put(served.path(), 1, &signer);
    assert_eq!(result("0"), "2", "an older one");
    put(served.path(), 4, &signer);
    std::fs::write(served.path().join("b"), &made(4, &signer).0[..2000]).unwrap();
    assert_eq!(result("0"), "2", "half of one");
    let fresh = temp();
    let nothing = opened(TEST, &url("0"), fresh.path(), &[]);
    assert!(nothing.starts_with("error bundle http://127.0.0.1"), "{nothing}");
    std::fs::remove_file(served.path().join("b")).unwrap();
    assert_eq!(result("0"), "2", "it is gone");
    let nothing = opened(TEST, &url("0"), fresh.path(), &[]);
    assert!(nothing.contains("there is no object 'b'"), "{nothing}");
    put(served.path(), 5, &signer);
    assert_eq!((result("0"), result("60")), ("5".into(), "5".into()));
    // A copy that somebody changed near by is not believed, and is fetched again.
    let copies = || {
        let near = walk(home.path());
        near.into_iter().filter(|p| p.file_name().is_some_and(|n| n == "bundle")).collect::<Vec<_>>()
    };
    assert_eq!(copies().len(), 2, "the newest, and the one before it: {:?}", copies());
    for copy in copies() {
        let mut bytes = std::fs::read(&copy).unwrap();
        bytes[10] ^= 1;
        std::fs::write(&copy, bytes).unwrap();
    }
    assert_eq!(result("never"), "5");
    drop(server);
    assert_eq!(opened(TEST, &unserved(&signer), home.path(), &[]).split(' ').next(), Some("error"));
}

/// An address where nobody listens.
fn unserved(signer: &SecretKey) -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("bundle:http://127.0.0.1:{port}/b?key={}", signer.public())
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut result = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => result.extend(walk(&entry.path())),
            false => result.push(entry.path()),
        }
    }
    result
}

#[test]
fn of_many_processes_that_start_one_fetches() {
    const TEST: &str = "of_many_processes_that_start_one_fetches";
    if part().is_some() {
        return open();
    }
    let (served, home, signer) = (temp(), temp(), SecretKey::generate().unwrap());
    put(served.path(), 1, &signer);
    // A server of our own that counts who asks for the bundle, and is slow.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (bytes, signature) = made(1, &signer);
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (bytes, signature, counted) = (bytes.clone(), signature.clone(), counted.clone());
            std::thread::spawn(move || serve(stream, &bytes, &signature, &counted));
        }
    });
    let url = format!("bundle:http://127.0.0.1:{port}/b?key={}", signer.public());
    let many: Vec<_> = (0..20).map(|_| opening(TEST, &url, home.path(), &[])).collect();
    for child in many {
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).to_string();
        assert!(said.contains("FOUND 1"), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
    }
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1, "one process of twenty asked");
}

fn serve(mut stream: TcpStream, bundle: &[u8], signature: &str, asked: &std::sync::atomic::AtomicU64) {
    use std::io::Write;
    let mut heard = Vec::new();
    let mut part = [0; 4096];
    loop {
        while !heard.ends_with(b"\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(0) | Err(_) => return,
                Ok(n) => heard.extend_from_slice(&part[..n]),
            }
        }
        let body = match heard.starts_with(b"GET /b ") {
            true => {
                asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(300));
                bundle
            }
            false => signature.as_bytes(),
        };
        heard.clear();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"one\"\r\n\
             Last-Modified: Tue, 17 Nov 2026 07:00:00 GMT\r\n\r\n",
            body.len()
        );
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_err() {
            return;
        }
    }
}

#[test]
fn who_signs_an_object_is_named() {
    warplap_fleet::register();
    let key = SecretKey::generate().unwrap().public().to_string();
    for (bad, why) in [
        ("bundle:s3://bucket/b".to_string(), "?key=KEY"),
        (format!("bundle:s3://bucket/b?key={key}&refresh=soon"), "refresh"),
        (format!("bundle:/tmp/b?key={key}&refresh=60"), "unknown"),
        (format!("bundle:ftp://host/b?key={key}"), "ftp"),
    ] {
        let said = Store::open(&bad).map(|_| ()).unwrap_err().to_string();
        assert!(said.contains(why), "{bad}: {said}");
    }
}

#[test]
fn a_bucket_gives_its_bundle_to_whom_it_lets_in() {
    const TEST: &str = "a_bucket_gives_its_bundle_to_whom_it_lets_in";
    if part().is_some() {
        return open();
    }
    if !long() {
        return;
    }
    let (dir, home, signer) = (temp(), temp(), SecretKey::generate().unwrap());
    let python = moto();
    let server = Server::start(&python, &["-m", "moto.server", "-H", "127.0.0.1", "-p", "PORT"], dir.path());
    let endpoint = format!("http://127.0.0.1:{}", server.1);
    let rights = [
        ("AWS_ACCESS_KEY_ID", "somebody"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    let upload = |serial| {
        put(dir.path(), serial, &signer);
        let script = "import boto3, sys\ns3 = boto3.client('s3', endpoint_url=sys.argv[1])\n\
            s3.create_bucket(Bucket='fleet')\nfor n in ('b.minisig', 'b'): s3.upload_file(n, 'fleet', 'bundles/' + n)";
        let mut command = Command::new(&python);
        command.args(["-c", script, &endpoint]).current_dir(dir.path()).envs(rights);
        assert!(command.status().unwrap().success());
    };
    let result = |name: &str, refresh: &str| {
        let url = format!("bundle:s3://fleet/bundles/{name}?key={}&refresh={refresh}", signer.public());
        opened(TEST, &url, home.path(), &rights)
    };
    upload(1);
    assert_eq!((result("b", "60"), result("b", "0")), ("1".into(), "1".into()));
    upload(2);
    assert_eq!((result("b", "60"), result("b", "0")), ("1".into(), "2".into()));
    let missing = result("c", "0");
    assert!(missing.contains("there is no object 'bundles/c'"), "{missing}");
    // Nobody's rights are asked of another server than the one that was named.
    drop(server);
    let begun = Instant::now();
    assert_eq!((result("b", "0"), result("b", "never")), ("2".into(), "2".into()), "the copy goes on");
    say(std::io::stderr(), format!("  a store of objects that is gone costs {:?}", begun.elapsed()));
}

/// Python with a server that speaks S3.
fn moto() -> std::path::PathBuf {
    let home = std::env::temp_dir().join(format!("warplap-test-objects-{}", rustix::process::geteuid().as_raw()));
    let python = home.join("bin/python");
    let run = |program: &Path, with: &[&str]| {
        let status = Command::new(program).args(with).stdin(Stdio::null()).status();
        assert!(status.is_ok_and(|s| s.success()), "{} {with:?} failed: the test needs moto", program.display());
    };
    if !home.join("made").exists() {
        run(Path::new("python3"), &["-m", "venv", home.to_str().unwrap()]);
        let wants = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "moto[server,s3]==5.2.5"];
        run(&python, &wants);
        std::fs::write(home.join("made"), "").unwrap();
    }
    python
}
