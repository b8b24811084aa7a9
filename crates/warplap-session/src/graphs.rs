//! Graphs of operations on a session: they share its device, its store and what it has learnt of whole graphs.

use std::sync::Arc;

use warplap_graph::{Builder, Ground, RacedSizes, Tuners};

use crate::session::Session;

impl<D: Ground> Session<D> {
    /// Starts building a graph of operations on this session's device, with its store and settings.
    pub fn graph(&self) -> Builder<D> {
        let tuners = Tuners::new(self.device().clone(), self.store().clone(), self.settings().clone());
        Builder::new(tuners.knowing(self.shared(Arc::<RacedSizes>::default).clone()))
    }
}
