//! The first product of a shape races the variants; the second one, and the next program, go straight to the winner.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use warplap::{DType, Error, Gemm, GemmProblem, Session};

pub(crate) fn main() -> Result<(), Error> {
    let session = Session::builder().in_memory().build();
    let problem = GemmProblem::new(96, 96, 96, DType::F32);
    let (a, b) = (vec![0.5f32; 96 * 96], vec![2.0f32; 96 * 96]);
    let mut c = vec![0f32; 96 * 96];

    for call in ["first", "second"] {
        let start = Instant::now();
        session.gemm(&problem, &a[..], &b[..], &mut c[..])?;
        println!("{call} call: {:?}", start.elapsed());
    }
    assert!(c.iter().all(|x| *x == 96.0));

    let chosen = session.tuner::<Gemm>().choose(&problem)?;
    println!("the winner is {}", chosen.candidate);
    Ok(())
}
