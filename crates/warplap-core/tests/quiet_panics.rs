//! A candidate that panics is told to nobody but the log: hooks are a process's own, so this is a process of its own.

use std::panic::{set_hook, take_hook};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use warplap_core::panics::contained;
use warplap_core::rejection::Rejection;

#[test]
fn a_candidates_panic_is_an_answer_and_what_panics_elsewhere_is_told_as_before() {
    let message = Arc::new(AtomicUsize::new(0));
    let (usual, count) = (take_hook(), message.clone());
    set_hook(Box::new(move |panic| match panic.payload_as_str().is_some_and(|text| text.starts_with("planted")) {
        true => _ = count.fetch_add(1, Ordering::Relaxed),
        false => usual(panic),
    }));
    let crashed = |reason: &str| Err(Rejection::Crashed { reason: reason.into() });
    let after = || {
        assert_eq!(contained::<()>(|| panic!("planted inside")), crashed("planted inside"));
        panic!("planted after")
    };
    assert_eq!(contained::<()>(after), crashed("planted after"));
    assert_eq!(contained::<()>(|| panic!("planted {}", 2)), crashed("planted 2"));
    assert_eq!(message.load(Ordering::Relaxed), 0);
    assert!(std::thread::spawn(|| panic!("planted elsewhere")).join().is_err());
    assert_eq!(message.load(Ordering::Relaxed), 1);
}
