//! `warplap store verify`: every file is opened and checked; nothing is changed.

use serde_json::json;
use warplap::core::store::care::{self, Verified};
use warplap::core::store::{Entry, Store};

use crate::console::{BAD, Console, GOOD, WARN, paint};
use crate::failure::{Exit, Failure};
use crate::units;

pub(crate) fn run(store: &Store, console: &Console) -> Result<Exit, Failure> {
    let result = care::verify(store);
    let exit = if result.is_clean() { Exit::Ok } else { Exit::NoAnswer };
    if console.json {
        for (word, entry, why) in troubles(&result) {
            console.line(&json!({"trouble": word, "path": entry.path.display().to_string(), "why": why}))?;
        }
        console.line(&json!({
            "ok": result.ok,
            "damaged": result.damaged.len(),
            "misplaced": result.misplaced.len(),
            "unreadable": result.unreadable.len(),
            "newer": result.newer.len(),
            "set_aside": result.set_aside,
            "clean": result.is_clean(),
        }))?;
        return Ok(exit);
    }
    for (word, entry, why) in troubles(&result) {
        console.say(format!("{}  {}: {why}", paint(BAD, word), entry.path.display()))?;
    }
    let mut text = paint(GOOD, format!("{} whole", units::some(result.ok, "record", "records")));
    if !result.newer.is_empty() {
        text.push_str(&paint(WARN, format!(", {} of a newer warplap", result.newer.len())));
    }
    let bad = result.damaged.len() + result.misplaced.len() + result.unreadable.len();
    if bad > 0 {
        let what = format!(", {} not (warplap store prune --damaged)", bad);
        text.push_str(&paint(BAD, what));
    }
    if result.set_aside > 0 {
        text.push_str(&paint(WARN, format!(", {} set aside earlier", result.set_aside)));
    }
    console.say(text)?;
    Ok(exit)
}

fn troubles(result: &Verified) -> impl Iterator<Item = (&'static str, &Entry, &str)> {
    (result.damaged.iter().map(|(entry, why)| ("damaged", entry, why.as_str())))
        .chain(result.misplaced.iter().map(|(entry, why)| ("misplaced", entry, why.as_str())))
        .chain(result.unreadable.iter().map(|(entry, why)| ("unreadable", entry, why.as_str())))
}
