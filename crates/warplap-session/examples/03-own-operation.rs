//! Your own operation: sums of rows, with two variants. Everything else (inputs, verification, the race, the store,
//! dispatch) comes with the tuner.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use warplap::core::arg::Arg;
use warplap::core::array::Array;
use warplap::core::bucket::Bucket;
use warplap::core::candidate::SourceHash;
use warplap::core::catalog::Catalog;
use warplap::core::op::Answer;
use warplap::core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap::core::progress::Silent;
use warplap::core::rejection::Rejection;
use warplap::core::roofline::Work;
use warplap::core::slot::{Signature, Slot};
use warplap::core::space::{Axis, Config, Space};
use warplap::core::store::Store;
use warplap::core::tolerance::Tolerance;
use warplap::core::variant::{Fit, Kernel, Variant};
use warplap::cpu::{Slice, SliceMut};
use warplap::{Cpu, DType, Error, Op, Settings, Tuner};

/// The facts of one request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rows {
    rows: u64,
    columns: u64,
}

impl Problem for Rows {
    type Op = RowSums;
    const FIELDS: &'static [&'static str] = &["rows", "columns"];

    fn fields(&self) -> Fields {
        Fields::new().with("rows", self.rows).with("columns", self.columns)
    }
    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        Ok(Rows { rows: fields.size("rows")?, columns: fields.size("columns")? })
    }
    fn key_fields(&self, bucket: &Bucket) -> Fields {
        self.representative(bucket).fields()
    }
    fn representative(&self, bucket: &Bucket) -> Self {
        Rows { rows: bucket.round("rows", self.rows), columns: bucket.round("columns", self.columns) }
    }
    fn work(&self) -> Work {
        let elements = (self.rows * self.columns) as f64;
        Work { flops: elements, bytes: 4.0 * elements }
    }
    fn dtype(&self) -> DType {
        DType::F32
    }
}

/// The operation.
struct RowSums;

/// The slots of its signature by number.
mod slot {
    /// The rows.
    pub(crate) const X: usize = 0;
    /// Their sums.
    pub(crate) const SUMS: usize = 1;
}

impl Op for RowSums {
    const NAME: &'static str = "row_sums";
    type Problem = Rows;

    fn signature(p: &Rows) -> Signature {
        let x = Slot::input("x", DType::F32, &[p.rows, p.columns]);
        Signature(vec![x, Slot::output("sums", DType::F32, &[p.rows])])
    }
    fn answer(p: &Rows, inputs: &[Array]) -> Vec<Answer> {
        let x = inputs[slot::X].to_f64();
        let values = x.chunks(p.columns as usize).map(|row| row.iter().sum()).collect();
        let tolerance = Tolerance::dot(DType::F32, DType::F32, p.columns as usize, p.columns as f64);
        vec![Answer { values, tolerance }]
    }
}

/// One variant, with the number of running sums as its axis; the reference has one.
struct Lanes(&'static str, &'static [i64]);

impl Variant<RowSums, Cpu> for Lanes {
    fn id(&self) -> &str {
        self.0
    }
    fn source(&self) -> SourceHash {
        SourceHash::of(&[include_str!("03-own-operation.rs")])
    }
    fn fit(&self, _: &Rows, _: &Cpu) -> Fit {
        Fit::HIGH
    }
    fn space(&self, _: &Rows, _: &Cpu) -> Space {
        Space::single().axis(Axis::ints("lanes", self.1.iter().copied()))
    }
    fn build(&self, p: &Rows, config: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let columns = p.columns as usize;
        Ok(match config.int("lanes") {
            Some(16) => Box::new(Sums::<16> { columns }),
            Some(8) => Box::new(Sums::<8> { columns }),
            _ => Box::new(Sums::<1> { columns }),
        })
    }
}

/// A kernel keeps what it needs of the problem it was built for.
struct Sums<const L: usize> {
    columns: usize,
}

impl<const L: usize> Kernel<Cpu> for Sums<L> {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let (Slice::F32(x), SliceMut::F32(sums)) = (args[slot::X].read()?, args[slot::SUMS].write()?) else {
            return Err(Rejection::LaunchFailed { reason: "row sums are of f32".into() });
        };
        for (row, sum) in x.chunks(self.columns).zip(sums) {
            let mut lanes = [0f32; L];
            let chunks = row.chunks_exact(L);
            let rest: f32 = chunks.remainder().iter().sum();
            for chunk in chunks {
                lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane += x);
            }
            *sum = lanes.iter().sum::<f32>() + rest;
        }
        Ok(())
    }
}

pub(crate) fn main() -> Result<(), Error> {
    let catalog = Catalog::new(Arc::new(Lanes("plain", &[1]))).with(Arc::new(Lanes("unrolled", &[8, 16])));
    let tuner: Tuner<RowSums, Cpu> = Tuner::new(Arc::new(Cpu::new()), catalog, Store::memory(), Settings::default());
    let problem = RowSums::parse("row_sums:rows=200,columns=1000")?;
    let tuned = tuner.tune(&problem, &Silent)?;
    println!("{}: {} in {:.1} us", tuned.key, tuned.edition.verdict.winner, tuned.edition.verdict.median_us);
    for trial in &tuned.edition.trials {
        println!("  {} {:?}", trial.candidate, trial.median_us());
    }

    let (x, mut sums) = (vec![1f32; 200_000], vec![0f32; 200]);
    let mut args = [Arg::Read((&x[..]).into()), Arg::Write((&mut sums[..]).into())];
    tuner.launch(&problem, &mut args, &())?;
    assert!(sums.iter().all(|s| *s == 1000.0));
    Ok(())
}
