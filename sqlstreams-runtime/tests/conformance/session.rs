//! What clients promise, on both databases: producing, consuming, outcomes, versions, shutdown.

pub mod recorder;
pub mod world;

mod dead_letters;
mod delayed;
mod delivery;
mod delivery_log;
mod exclusive;
mod grouping;
mod groups;
mod handlers;
mod handover;
mod keeping;
mod keyed;
mod maintenance;
mod ordered;
mod outcomes;
mod refusals;
mod registration;
mod rewinding;
mod shutdown;
mod spans;
mod undecodable;
mod versions;
