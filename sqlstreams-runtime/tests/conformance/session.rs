//! What clients promise, on both databases: producing, consuming, outcomes, versions, shutdown.

pub mod recorder;
pub mod world;

mod delayed;
mod delivery;
mod grouping;
mod groups;
mod handlers;
mod keeping;
mod keyed;
mod maintenance;
mod outcomes;
mod refusals;
mod registration;
mod shutdown;
mod spans;
mod undecodable;
mod versions;
