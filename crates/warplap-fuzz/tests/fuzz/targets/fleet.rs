//! What engines and workers say to each other: lines that another machine has written.

use warplap_fleet::jobs::{Class, Event, Job};

use super::said;

/// A job, an event and a class: what is understood is written and read again as the same.
pub(crate) fn jobs(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(job) = Job::read(&text) {
        assert_eq!(Job::read(&job.line()), Ok(job.clone()));
        assert!(job.policy().is_ok() && job.bucket().is_ok());
    }
    if let Ok(event) = Event::read(&text) {
        assert_eq!(Event::read(&event.line()), Ok(event));
    }
    if let Ok(class) = Class::read(&text) {
        assert_eq!(Class::read(&class.line()), Ok(class));
    }
    format!("{} {} {}", said(Job::read(&text)), said(Event::read(&text)), said(Class::read(&text)))
}
