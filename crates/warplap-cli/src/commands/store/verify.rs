//! `warplap store verify`: every file is opened and checked; nothing is changed.

use serde_json::json;
use warplap::core::store::care::{self, Verified};
use warplap::core::store::{Entry, Store};

use crate::console::{BAD, Console, GOOD, WARN, paint};
use crate::failure::{Exit, Failure};
use crate::units;

pub(crate) fn run(store: &Store, console: &Console) -> Result<Exit, Failure> {
    let found = care::verify(store);
    let exit = if found.is_clean() { Exit::Ok } else { Exit::NoAnswer };
    if console.json {
        for (word, entry, why) in troubles(&found) {
            console.line(&json!({"trouble": word, "path": entry.path.display().to_string(), "why": why}))?;
        }
        console.line(&json!({
            "ok": found.ok,
            "damaged": found.damaged.len(),
            "misplaced": found.misplaced.len(),
            "unreadable": found.unreadable.len(),
            "newer": found.newer.len(),
            "set_aside": found.set_aside,
            "clean": found.is_clean(),
        }))?;
        return Ok(exit);
    }
    for (word, entry, why) in troubles(&found) {
        console.say(format!("{}  {}: {why}", paint(BAD, word), entry.path.display()))?;
    }
    let mut text = paint(GOOD, format!("{} whole", units::some(found.ok, "record", "records")));
    if !found.newer.is_empty() {
        text.push_str(&paint(WARN, format!(", {} of a newer warplap", found.newer.len())));
    }
    let bad = found.damaged.len() + found.misplaced.len() + found.unreadable.len();
    if bad > 0 {
        let what = format!(", {} not (warplap store prune --damaged)", bad);
        text.push_str(&paint(BAD, what));
    }
    if found.set_aside > 0 {
        text.push_str(&paint(WARN, format!(", {} set aside earlier", found.set_aside)));
    }
    console.say(text)?;
    Ok(exit)
}

fn troubles(found: &Verified) -> impl Iterator<Item = (&'static str, &Entry, &str)> {
    (found.damaged.iter().map(|(entry, why)| ("damaged", entry, why.as_str())))
        .chain(found.misplaced.iter().map(|(entry, why)| ("misplaced", entry, why.as_str())))
        .chain(found.unreadable.iter().map(|(entry, why)| ("unreadable", entry, why.as_str())))
}
