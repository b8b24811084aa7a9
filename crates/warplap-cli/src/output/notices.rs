//! Notices: what the libraries say through `tracing` goes to the console, each warning once.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::console::Console;

/// Sends warnings, and with `-v` the rest, to the console from now on.
pub(crate) fn listen(console: &Arc<Console>) {
    let notices = Notices { console: console.clone(), said: Mutex::default() };
    // Only one listener can be set, and this is the only place that does.
    let _ = tracing::subscriber::set_global_default(notices);
}

struct Notices {
    console: Arc<Console>,
    said: Mutex<HashSet<String>>,
}

impl Notices {
    fn wanted(&self, level: &Level) -> bool {
        *level
            <= match self.console.verbose {
                0 => Level::WARN,
                1 => Level::INFO,
                _ => Level::DEBUG,
            }
    }
}

impl Subscriber for Notices {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("warplap") && self.wanted(metadata.level())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if !self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(text.0.clone()) {
            return;
        }
        match *event.metadata().level() {
            Level::ERROR | Level::WARN => self.console.warn(text.0),
            _ => self.console.log(text.0),
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let separator = if self.0.is_empty() { "" } else { ", " };
        // Writing to a String does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{separator}{value:?}"),
            name => write!(self.0, "{separator}{name}={value:?}"),
        };
    }
}
