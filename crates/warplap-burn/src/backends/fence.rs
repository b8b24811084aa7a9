//! Order between Burn's streams and ours on one GPU. Burn's streams are private, but they are streams of the device's
//! primary context, as ours is: an event of the whole context (drivers since CUDA 12.5) orders ours behind all that Burn
//! has queued, and what Burn queues next behind ours, without a wait on the host. Where a driver has no such events, the
//! host waits for Burn's stream before a launch, and for ours after it; for no others.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};

use cubecl::client::Client;
use libloading::Library;
use warplap::Error;
use warplap::cuda::Stream;

use crate::backends::cube::DEVICES;

type Handle = *mut c_void;

/// The driver's functions that are needed here.
struct Driver {
    primary: unsafe extern "C" fn(*mut Handle, c_int) -> c_int,
    make_current: unsafe extern "C" fn(Handle) -> c_int,
    make_event: unsafe extern "C" fn(*mut Handle, u32) -> c_int,
    record: unsafe extern "C" fn(Handle, Handle) -> c_int,
    wait: unsafe extern "C" fn(Handle, Handle, u32) -> c_int,
    record_context: unsafe extern "C" fn(Handle, Handle) -> c_int,
    context_waits: unsafe extern "C" fn(Handle, Handle) -> c_int,
    _library: Library,
}

/// No timing: the cheapest event.
const PLAIN: u32 = 2;

fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let load = || {
        // SAFETY: the driver's library has no initialiser that does harm; Burn has loaded it already.
        let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
        macro_rules! find {
            ($name:literal) => {
                // SAFETY: the type is the one that the driver's manual gives the function of this name.
                *unsafe { library.get($name) }.ok()?
            };
        }
        Some(Driver {
            primary: find!(b"cuDevicePrimaryCtxRetain"),
            make_current: find!(b"cuCtxSetCurrent"),
            make_event: find!(b"cuEventCreate"),
            record: find!(b"cuEventRecord"),
            wait: find!(b"cuStreamWaitEvent"),
            record_context: find!(b"cuCtxRecordEvent"),
            context_waits: find!(b"cuCtxWaitEvent"),
            _library: library,
        })
    };
    DRIVER.get_or_init(load).as_ref()
}

/// The two events of a device, and its context.
struct Events {
    context: Handle,
    before: Handle,
    after: Handle,
}

// SAFETY: handles of the driver's may be used from every thread.
unsafe impl Send for Events {}

impl Events {
    fn new(driver: &Driver, ordinal: i32) -> Option<Self> {
        let (mut context, mut before, mut after) = (null_mut(), null_mut(), null_mut());
        // SAFETY: each call writes one handle; the context is the primary one, which Burn and we hold already.
        let answers = unsafe {
            [
                (driver.primary)(&mut context, ordinal),
                (driver.make_current)(context),
                (driver.make_event)(&mut before, PLAIN),
                (driver.make_event)(&mut after, PLAIN),
            ]
        };
        (answers == [0; 4]).then_some(Events { context, before, after })
    }
}

type KeptEvents = Mutex<Option<Option<Events>>>;

/// The events of a device, where its driver has events of a whole context.
fn events(ordinal: i32) -> Option<(&'static Driver, &'static KeptEvents)> {
    static PLACES: [KeptEvents; DEVICES] = [const { Mutex::new(None) }; DEVICES];
    Some((driver()?, PLACES.get(usize::try_from(ordinal).ok()?)?))
}

/// Runs a launch on our stream between Burn's work before it and after it.
pub(crate) fn between<R>(
    client: &Client,
    ours: &Stream,
    ordinal: i32,
    launch: impl FnOnce() -> Result<R, Error>,
) -> Result<R, Error> {
    if let Some((driver, place)) = events(ordinal) {
        // Held over the launch: events are used again, and two launches at once would mix theirs up.
        let mut held = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(events) = held.get_or_insert_with(|| Events::new(driver, ordinal)) {
            // SAFETY: context, events and stream are alive; Burn's thread has queued what was asked of it before.
            let behind = unsafe {
                (driver.make_current)(events.context) == 0
                    && (driver.record_context)(events.context, events.before) == 0
                    && (driver.wait)(ours.handle() as Handle, events.before, 0) == 0
            };
            if behind {
                let outcome = launch();
                // SAFETY: as above.
                let ahead = unsafe {
                    (driver.make_current)(events.context) == 0
                        && (driver.record)(events.after, ours.handle() as Handle) == 0
                        && (driver.context_waits)(events.context, events.after) == 0
                };
                if !ahead {
                    ours.synchronize().map_err(|e| Error::Device(e.to_string()))?;
                }
                return outcome;
            }
        }
    }
    finished(client)?;
    let outcome = launch();
    ours.synchronize().map_err(|e| Error::Device(e.to_string()))?;
    outcome
}

/// Waits until everything that was asked of Burn's stream of this thread has ended.
pub(crate) fn finished(client: &Client) -> Result<(), Error> {
    cubecl_environment::future::block_on(client.sync()).map_err(|e| Error::Device(format!("Burn's stream: {e:?}")))
}
