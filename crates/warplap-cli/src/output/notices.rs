//! Notices: what the libraries say through `tracing` goes to the console. Of warnings that one line of code gives,
//! about one record after another, the first is shown and the others are counted.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::console::Console;
use crate::units;

/// Sends warnings, and with `-v` the rest, to the console from now on.
pub(crate) fn listen(console: &Arc<Console>) -> LeftOut {
    let said = Arc::<Mutex<Said>>::default();
    let notices = Notices { console: console.clone(), said: said.clone() };
    // Only one listener can be set, and this is the only place that does.
    let _ = tracing::subscriber::set_global_default(notices);
    LeftOut(said)
}

/// The warnings that were like others.
pub(crate) struct LeftOut(Arc<Mutex<Said>>);

impl LeftOut {
    /// Says how many there were, at the end.
    pub(crate) fn tell(&self, console: &Console) {
        let count = self.0.lock().unwrap_or_else(PoisonError::into_inner).left_out;
        if count > 0 {
            let warnings = units::some(count, "more warning", "more warnings");
            console.warn(format_args!("{warnings} like the above (-v shows all of them)"));
        }
    }
}

#[derive(Default)]
struct Said {
    texts: HashSet<String>,
    warned: HashSet<Identifier>,
    left_out: usize,
}

struct Notices {
    console: Arc<Console>,
    said: Arc<Mutex<Said>>,
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
        let is_warning = *event.metadata().level() <= Level::WARN;
        {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if !said.texts.insert(text.0.clone()) {
                return;
            }
            if is_warning && !said.warned.insert(event.metadata().callsite()) && self.console.verbose == 0 {
                said.left_out += 1;
                return;
            }
        }
        if is_warning { self.console.warn(text.0) } else { self.console.log(text.0) }
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
