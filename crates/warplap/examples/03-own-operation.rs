//! Your own operation: sums of rows, with two variants. Everything else (inputs, verification, the race, the store,
//! dispatch) comes with the tuner.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use warplap::core::array::Array;
use warplap::core::bucket::Bucket;
use warplap::core::candidate::SourceHash;
use warplap::core::catalog::Catalog;
use warplap::core::device::Device;
use warplap::core::op::Answer;
use warplap::core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap::core::progress::Silent;
use warplap::core::rejection::Rejection;
use warplap::core::roofline::Work;
use warplap::core::space::{Axis, Config, Space};
use warplap::core::store::MemoryStore;
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

struct RowArgs<'a, D: Device> {
    problem: &'a Rows,
    x: D::View<'a>,
    sums: D::ViewMut<'a>,
}

impl Op for RowSums {
    const NAME: &'static str = "row_sums";
    type Problem = Rows;
    type Args<'a, D: Device> = RowArgs<'a, D>;

    fn draw(p: &Rows, rng: &mut fastrand::Rng) -> Vec<Array> {
        vec![Array::random(DType::F32, (p.rows * p.columns) as usize, rng)]
    }
    fn output(p: &Rows) -> (DType, usize) {
        (DType::F32, p.rows as usize)
    }
    fn answer(p: &Rows, inputs: &[Array]) -> Answer {
        let x = inputs[0].to_f64();
        let values = x.chunks(p.columns as usize).map(|row| row.iter().sum()).collect();
        let tolerance = Tolerance::dot(DType::F32, DType::F32, p.columns as usize, p.columns as f64);
        Answer { values, tolerance }
    }
    fn bind<'a, D: Device>(problem: &'a Rows, inputs: Vec<D::View<'a>>, output: D::ViewMut<'a>) -> RowArgs<'a, D> {
        RowArgs { problem, x: inputs[0], sums: output }
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
    fn build(&self, _: &Rows, config: &Config, _: &Cpu) -> Result<Box<dyn Kernel<RowSums, Cpu>>, Rejection> {
        Ok(match config.int("lanes") {
            Some(16) => Box::new(Sums::<16>),
            Some(8) => Box::new(Sums::<8>),
            _ => Box::new(Sums::<1>),
        })
    }
}

struct Sums<const L: usize>;

impl<const L: usize> Kernel<RowSums, Cpu> for Sums<L> {
    fn launch(&self, args: RowArgs<'_, Cpu>, _: &()) -> Result<(), Rejection> {
        let (Slice::F32(x), SliceMut::F32(sums)) = (args.x, args.sums) else {
            return Err(Rejection::LaunchFailed { reason: "row sums are of f32".into() });
        };
        for (row, sum) in x.chunks(args.problem.columns as usize).zip(sums) {
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
    let tuner: Tuner<RowSums, Cpu> =
        Tuner::new(Arc::new(Cpu::new()), catalog, Arc::new(MemoryStore::new()), Settings::default());
    let problem = RowSums::parse("row_sums:rows=200,columns=1000")?;
    let tuned = tuner.tune(&problem, &Silent)?;
    println!("{}: {} in {:.1} us", tuned.key, tuned.edition.verdict.winner, tuned.edition.verdict.median_us);
    for trial in &tuned.edition.trials {
        println!("  {} {:?}", trial.candidate, trial.median_us());
    }

    let (x, mut sums) = (vec![1f32; 200_000], vec![0f32; 200]);
    let args = RowArgs { problem: &problem, x: (&x[..]).into(), sums: (&mut sums[..]).into() };
    tuner.launch(&problem, args, &())?;
    assert!(sums.iter().all(|s| *s == 1000.0));
    Ok(())
}
