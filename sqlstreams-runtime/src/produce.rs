//! Producing: encoding a payload, and sharing inserts between concurrent calls.

pub(crate) mod encode;
pub(crate) mod grouping;
