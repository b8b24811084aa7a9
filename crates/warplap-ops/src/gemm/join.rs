//! What a product is joined with once it is activated: another matrix that lies as C does, as a word of the problem.

use warplap_core::declare::words;

words! {
    /// How an element of another matrix is taken in: a residual is added, what a gate lets through is multiplied.
    #[derive(Default)]
    pub enum Join {
        /// There is no other matrix.
        #[default]
        None = "none",
        /// Its element is added.
        Add = "add",
        /// Its element is multiplied with.
        Mul = "mul",
    }
}

impl Join {
    /// How `epilogue.cuh` counts it.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Join::None => 0,
            Join::Add => 1,
            Join::Mul => 2,
        }
    }

    /// The joined value in double precision.
    pub fn of(self, x: f64, other: f64) -> f64 {
        match self {
            Join::None => x,
            Join::Add => x + other,
            Join::Mul => x * other,
        }
    }
}
