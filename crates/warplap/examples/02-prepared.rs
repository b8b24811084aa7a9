//! A prepared kernel does no lookup at all: prepare once, launch often.

use warplap::{DType, Error, GemmArgs, GemmProblem, Mode, Session};

pub(crate) fn main() -> Result<(), Error> {
    // Replay answers from the store alone and never measures: what a server wants.
    let session = Session::builder().in_memory().mode(Mode::Replay).build();
    let problem = GemmProblem::new(1, 256, 256, DType::F32);
    let kernel = session.prepare(&problem)?;

    let (a, b) = (vec![1f32; 256], vec![1f32; 256 * 256]);
    let mut c = vec![0f32; 256];
    for _ in 0..100 {
        let args = GemmArgs { problem: &problem, a: (&a[..]).into(), b: (&b[..]).into(), c: (&mut c[..]).into() };
        kernel.launch(args)?;
    }
    assert!(c.iter().all(|x| *x == 256.0));
    Ok(())
}
