//! An operation with every kind of slot: two outputs of different types, one in place, an optional input, an optional
//! number, and rows with padding.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op};
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};
use warplap_core::space::{Config, Space};
use warplap_core::tolerance::Tolerance;
use warplap_core::variant::{Fit, Kernel, Variant};

use crate::fake::{Count, Fake, Meter};

/// One step of a descent: moved = rate g mask, w -= moved, and down says where moved is above zero.
pub struct Descend;

/// Columns of every matrix.
pub const COLUMNS: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DescendProblem {
    pub rows: u64,
    /// Elements between two rows.
    pub pad: u64,
    /// Without a mask it is 1.
    pub masked: bool,
    /// Without a rate it is 1.
    pub rated: bool,
}

impl DescendProblem {
    fn step(&self) -> usize {
        COLUMNS + self.pad as usize
    }

    /// Elements from the first to the last.
    pub fn span(&self) -> usize {
        (self.rows as usize - 1) * self.step() + COLUMNS
    }

    fn is_padding(&self, at: usize) -> bool {
        at % self.step() >= COLUMNS
    }
}

pub const G: usize = 0;
pub const MASK: usize = 1;
pub const RATE: usize = 2;
pub const W: usize = 3;
pub const MOVED: usize = 4;
pub const DOWN: usize = 5;

/// The slots that are written.
pub const WRITTEN: [usize; 3] = [W, MOVED, DOWN];

impl Problem for DescendProblem {
    type Op = Descend;
    const FIELDS: &'static [&'static str] = &["rows", "pad", "masked", "rated"];

    fn fields(&self) -> Fields {
        let fields = Fields::new().with("rows", self.rows).with_unless("pad", self.pad, 0);
        fields.with("masked", self.masked).with("rated", self.rated)
    }
    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        Ok(DescendProblem {
            rows: fields.size("rows")?,
            pad: fields.size_or("pad", 0)?,
            masked: fields.word_or("masked", "true or false", false)?,
            rated: fields.word_or("rated", "true or false", false)?,
        })
    }
    fn key_fields(&self, _: &Bucket) -> Fields {
        self.fields()
    }
    fn representative(&self, _: &Bucket) -> Self {
        self.clone()
    }
    fn work(&self) -> Work {
        Work { flops: self.span() as f64, bytes: 0.0 }
    }
    fn dtype(&self) -> DType {
        DType::F32
    }
}

impl Op for Descend {
    const NAME: &'static str = "descend";
    type Problem = DescendProblem;

    fn signature(p: &DescendProblem) -> Signature {
        let (shape, strides) = ([p.rows, COLUMNS as u64], [p.step() as u64, 1]);
        Signature(vec![
            Slot::input("g", DType::F16, &shape).strided(&strides),
            Slot::input("mask", DType::F32, &shape).strided(&strides).when(p.masked),
            Slot::scalar("rate", DType::F32).when(p.rated),
            Slot::in_out("w", DType::F32, &shape).strided(&strides),
            Slot::output("moved", DType::F16, &shape).strided(&strides),
            Slot::output("down", DType::I32, &shape).strided(&strides),
        ])
    }

    fn answer(p: &DescendProblem, inputs: &[Array]) -> Vec<Answer> {
        let mask = p.masked.then(|| inputs[MASK].to_f64());
        let rate = if p.rated { inputs[RATE].at(0) } else { 1.0 };
        let right = step(&inputs[G].to_f64(), mask.as_deref(), rate, &inputs[W].to_f64());
        let near = |dtype| Tolerance::dot(dtype, DType::F32, 2, 2.0);
        let tolerances = [near(DType::F32), near(DType::F16), Tolerance { relative: 0.0, floor: 0.0 }];
        let answer = |(mut values, tolerance): (Vec<f64>, Tolerance)| {
            (0..values.len()).filter(|i| p.is_padding(*i)).for_each(|i| values[i] = f64::NAN);
            Answer { values, tolerance }
        };
        right.into_iter().zip(tolerances).map(answer).collect()
    }
}

/// What w, moved and down become.
pub fn step(g: &[f64], mask: Option<&[f64]>, rate: f64, w: &[f64]) -> [Vec<f64>; 3] {
    let moved: Vec<f64> = g.iter().enumerate().map(|(i, g)| rate * g * mask.map_or(1.0, |m| m[i])).collect();
    let down = moved.iter().map(|m| f64::from(*m > 0.0)).collect();
    [w.iter().zip(&moved).map(|(w, m)| w - m).collect(), moved, down]
}

/// What a way does when it is launched; slots by their place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    Right,
    /// Leaves a slot as it was.
    Leaves(usize),
    /// Leaves the last element of a slot as it was.
    LeavesLast(usize),
    /// Adds one to the last element of a slot.
    WrongIn(usize),
    /// Writes this many elements before (-) or after a slot.
    Strays(usize, isize),
    /// Writes between two rows of a slot.
    WritesPadding(usize),
    /// Starts from zeros, not from what it was given in place.
    ForgetsWhatItWasGiven,
    /// From its third launch on it is wrong in place.
    WrongInPlaceLater,
    IgnoresTheMask,
    IgnoresTheRate,
}

/// A variant by the table.
pub struct Way {
    pub id: &'static str,
    pub seconds: f64,
    pub act: Act,
    pub count: Arc<Count>,
}

pub fn way(id: &'static str, seconds: f64, act: Act) -> Way {
    Way { id, seconds, act, count: Arc::default() }
}

impl Variant<Descend, Fake> for Way {
    fn id(&self) -> &str {
        self.id
    }
    fn source(&self) -> SourceHash {
        SourceHash::of(&[self.id])
    }
    fn fit(&self, _: &DescendProblem, _: &Fake) -> Fit {
        Fit::HIGH
    }
    fn space(&self, _: &DescendProblem, _: &Fake) -> Space {
        Space::single()
    }
    fn build(&self, p: &DescendProblem, _: &Config, _: &Fake) -> Result<Box<dyn Kernel<Fake>>, Rejection> {
        Ok(Box::new(Built { p: p.clone(), seconds: self.seconds, act: self.act, count: self.count.clone() }))
    }
}

struct Built {
    p: DescendProblem,
    seconds: f64,
    act: Act,
    count: Arc<Count>,
}

impl Kernel<Fake> for Built {
    fn launch(&self, args: &mut [Arg<'_, Fake>], queue: &Meter) -> Result<(), Rejection> {
        let (nth, span) = (self.count.launches.fetch_add(1, Ordering::SeqCst) + 1, self.p.span());
        *queue.0.lock().unwrap() = self.seconds;
        let g = args[G].read()?.values;
        let mask = args[MASK].view().filter(|_| self.act != Act::IgnoresTheMask).map(|m| m.values);
        let rate = if self.p.rated && self.act != Act::IgnoresTheRate { args[RATE].scalar()?.real() } else { 1.0 };
        let written = [args[W].write()?, args[MOVED].write()?, args[DOWN].write()?];
        let arguments = match self.act {
            Act::ForgetsWhatItWasGiven => vec![0.0; span],
            _ => written[0].all[written[0].at.clone()][..span].to_vec(),
        };
        let right = step(&g[..span], mask, rate, &arguments);
        for (slot, (mut to, mut values)) in WRITTEN.into_iter().zip(written.into_iter().zip(right)) {
            match self.act {
                Act::Leaves(left) if left == slot => values.clear(),
                Act::LeavesLast(left) if left == slot => drop(values.pop()),
                Act::WrongIn(wrong) if wrong == slot => values[span - 1] += 1.0,
                Act::WrongInPlaceLater if slot == W && nth > 2 => values[0] += 1.0,
                Act::Strays(from, by) if from == slot => to.stray(by),
                Act::WritesPadding(between) if between == slot => to.all[to.at.start + COLUMNS] = 0.0,
                _ => {}
            }
            for (i, value) in values.into_iter().enumerate().filter(|(i, _)| !self.p.is_padding(*i)) {
                to.all[to.at.start + i] = value;
            }
        }
        Ok(())
    }
}
