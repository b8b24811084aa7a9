//! A prepared kernel does no lookup at all: prepare once, launch often.

use warplap::{Arg, DType, Error, GemmProblem, Mode, Session};

pub(crate) fn main() -> Result<(), Error> {
    // Replay answers from the store alone and never measures: what a server wants.
    let session = Session::builder().in_memory().mode(Mode::Replay).build();
    let problem = GemmProblem::new(1, 256, 256, DType::F32);
    let kernel = session.prepare(&problem)?;

    let (a, b) = (vec![1f32; 256], vec![1f32; 256 * 256]);
    let mut c = vec![0f32; 256];
    for _ in 0..100 {
        // One argument for each slot of the operation's signature; this problem has no bias, and is joined with nothing.
        kernel.launch(&mut [
            Arg::Read((&a[..]).into()),
            Arg::Read((&b[..]).into()),
            Arg::Write((&mut c[..]).into()),
            Arg::Absent,
            Arg::Absent,
            Arg::Absent,
            Arg::Absent,
        ])?;
    }
    assert!(c.iter().all(|x| *x == 256.0));
    Ok(())
}
