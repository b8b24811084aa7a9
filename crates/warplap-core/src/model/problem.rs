//! A Problem: the facts of one request, and the one text form that the command line, the store and the docs share.
//!
//! `gemm:m=1024,n=1024,k=1024,dtype=f32` is an operation's name, a colon, and its fields in any order.

use std::fmt::Debug;
use std::hash::Hash;

use crate::model::bucket::Bucket;
use crate::model::declare::FieldFacts;
use crate::model::dtype::DType;
pub use crate::model::fields::{FieldReader, Fields, MAX_SIZE, ProblemError, distance, harmless};
use crate::model::op::Op;
use crate::model::roofline::{Ceilings, Work};

/// The facts of one request: shapes, types, layout, flags, sparsity statistics. No data.
pub trait Problem: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// The operation it is a problem of.
    type Op: Op<Problem = Self>;

    /// The names of all fields there are, in the order messages list them.
    const FIELDS: &'static [&'static str];

    /// The fields of the text form, in the order they are printed; `read` of them gives this problem back.
    fn fields(&self) -> Fields;

    /// Reads a problem. Every field it takes from the reader is known; what is left is an unknown field.
    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError>;

    /// What one field says of another: the first that cannot be used. Whoever reads a problem asks it.
    fn check(&self) -> Result<(), ProblemError> {
        Ok(())
    }

    /// What docs and programs show of the fields: names alone where nobody declared them
    /// ([`problem!`](crate::declare::problem!)).
    fn table(&self) -> Vec<FieldFacts> {
        let named = |name: &&'static str| FieldFacts { name, ..FieldFacts::default() };
        Self::FIELDS.iter().map(named).collect()
    }

    /// What the Key keeps of this problem: sizes rounded by the bucket, classes in place of statistics, and every fact
    /// that decides which variants are legal.
    fn key_fields(&self, bucket: &Bucket) -> Fields;

    /// The problem with its sizes rounded by the bucket: those that change from call to call (rows, positions) by
    /// [`Bucket::round_changing`], the others by [`Bucket::round`].
    fn representative(&self, bucket: &Bucket) -> Self;

    /// The problem that is drawn and raced where this one is asked for: without what takes room and decides nothing. Its
    /// key is this one's.
    fn raced(&self) -> Self {
        self.clone()
    }

    /// A smaller problem of the same kind whose sizes end inside of tiles: a candidate that can do it too is proved on
    /// it as well. `None` where there is none of use.
    fn ragged(&self) -> Option<Self> {
        None
    }

    /// A much smaller problem of the same kind whose time, scaled by the work, tells what this one's will be. `None`
    /// where there is none.
    fn smaller(&self) -> Option<Self> {
        self.ragged()
    }

    /// The useful work.
    fn work(&self) -> Work;

    /// The type the inputs are stored in; it selects the arithmetic ceiling.
    fn dtype(&self) -> DType;

    /// The least seconds it can take by a device's ceilings; `None` where none is known for its type.
    fn floor(&self, ceilings: &Ceilings, cold: bool) -> Option<f64> {
        ceilings.floor(self.work(), self.dtype(), cold)
    }
}
