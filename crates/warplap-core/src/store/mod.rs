//! Where records are kept.
