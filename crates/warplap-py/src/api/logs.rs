//! Logs: what the library traces goes to Python's `logging`, to the logger `warplap`.

use std::fmt::{Debug, Write};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

struct Bridge;

/// Collects an event's message.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let space = if self.0.is_empty() { "" } else { " " };
        let _ = match field.name() {
            "message" => write!(self.0, "{space}{value:?}"),
            name => write!(self.0, "{space}{name}={value:?}"),
        };
    }
}

impl Subscriber for Bridge {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::DEBUG && metadata.target().starts_with("warplap")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            _ => 10,
        };
        // Nobody listens any more when the interpreter ends.
        let _ = Python::try_attach(|py| {
            let log = || -> PyResult<()> {
                let logger = py.import("logging")?.call_method1("getLogger", ("warplap",))?;
                logger.call_method1("log", (level, "%s", message.0)).map(drop)
            };
            // A log that cannot be written is no reason to fail.
            let _ = log();
        });
    }
}

/// Sends traces to Python from now on.
#[pyfunction]
pub(crate) fn connect_logs() {
    let _ = tracing::subscriber::set_global_default(Bridge);
}
