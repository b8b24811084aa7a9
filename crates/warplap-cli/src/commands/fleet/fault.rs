//! Planted faults, for tests of engines: a text comes in; some jobs then end their worker as a crash would.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use warplap_fleet::jobs::Job;

/// What is to go wrong: `die-once=15` (percent of all jobs, the first time), `poison=ID` (that job, always), `slow=MS`
/// (every race takes longer), `marks=DIR` (who has died), `log=FILE` (a line for each race that began).
#[derive(Clone, Debug, Default)]
pub(crate) struct Fault {
    percent: u32,
    poison: Option<String>,
    slow: Duration,
    marks: Option<PathBuf>,
    log: Option<PathBuf>,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let mut fault = Fault::default();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let form = || format!("'{part}': expected die-once=PERCENT, poison=ID, slow=MS, marks=DIR or log=FILE");
            let (name, value) = part.split_once('=').ok_or_else(form)?;
            match name {
                "die-once" => fault.percent = value.parse().map_err(|_| form())?,
                "poison" => fault.poison = Some(value.to_string()),
                "slow" => fault.slow = Duration::from_millis(value.parse().map_err(|_| form())?),
                "marks" => fault.marks = Some(value.into()),
                "log" => fault.log = Some(value.into()),
                _ => return Err(form()),
            }
        }
        Ok(fault)
    }
}

impl Fault {
    /// A race begins on a device of this class: it may be the end.
    pub(crate) fn strike(&self, job: &Job, device: &str) {
        if let Some(log) = &self.log {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let line = format!("{} {device} {} {now:.3}\n", job.id, std::process::id());
            let file = OpenOptions::new().append(true).create(true).open(log);
            let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
        }
        std::thread::sleep(self.slow);
        let poisoned = self.poison.as_deref() == Some(&job.id);
        if poisoned || (self.chooses(&job.id) && self.first_time(&job.id)) {
            // As a crash: nothing is flushed, nobody is told.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }

    /// Ids are hexadecimal digits of a hash.
    fn chooses(&self, id: &str) -> bool {
        id.get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok()).is_some_and(|n| n % 100 < self.percent)
    }

    fn first_time(&self, id: &str) -> bool {
        let Some(dir) = &self.marks else { return false };
        OpenOptions::new().write(true).create_new(true).open(dir.join(id)).is_ok()
    }
}
