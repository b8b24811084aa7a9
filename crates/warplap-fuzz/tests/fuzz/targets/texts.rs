//! What people and environments say in a line: problems, addresses of stores, single words.

use warplap::any::{self, Wanted};
use warplap::core::measure::Clock;
use warplap::core::store::Address;
use warplap::{Bucket, DType, Mode};

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A problem of any operation: its one text form reads as itself.
pub(crate) fn problem(bytes: &[u8]) -> String {
    match any::problem(&text(bytes), None) {
        Ok((op, problem)) => {
            let (same, again) = any::problem(&problem, None).expect("the one text form can be read");
            assert_eq!((same.name, &again), (op.name, &problem));
            op.name.into()
        }
        Err(e) => {
            assert!(super::is_short(&e.to_string()), "{e:?}");
            e.to_string()
        }
    }
}

/// Where a store is, as `WARPLAP_STORE` says it; nothing is opened.
pub(crate) fn address(bytes: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt;
    let read = Address::of(std::ffi::OsStr::from_bytes(bytes));
    if let Ok(Address::Directory(path)) = &read {
        let named = path.as_os_str().as_bytes();
        assert!(named.len() <= bytes.len() || !bytes.contains(&b'%'), "{path:?}");
    }
    if let Err(e) = &read {
        assert!(super::is_short(&e.to_string()), "{e:?}");
    }
    super::said(read)
}

/// The words of options and environment variables: each is read or refused with what was expected.
pub(crate) fn words(bytes: &[u8]) -> String {
    let text = text(bytes);
    let mode = text.parse::<Mode>().map(|mode| assert_eq!(mode.name(), text));
    let clock = text.parse::<Clock>().map(|clock| assert_eq!(clock.name(), text));
    let dtype = text.parse::<DType>().map(|dtype| assert_eq!(dtype.to_string().parse(), Ok(dtype)));
    let bucket = Bucket::named(&text).map(|bucket| assert_eq!(bucket.name(), text));
    let wanted = text.parse::<Wanted>().map(|wanted| assert_eq!(wanted.to_string().parse(), Ok(wanted)));
    let all = [mode, clock, dtype, bucket, wanted];
    assert!(all.iter().flatten().count() == all.len() || all.iter().any(|one| one.is_err()));
    all.map(|one| one.map_or_else(|e| e, |()| "read".into())).join("; ")
}
