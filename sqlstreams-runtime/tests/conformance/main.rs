//! One suite for every backend: each port method's contract, then what must hold between processes and across
//! crashes.

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/self_test.rs"]
mod self_test;

mod harness;

mod backend;
mod binding;
mod claim;
mod cursor;
mod delayed;
mod delivery;
mod exception;
mod group;
mod idempotency;
mod key;
mod lane;
mod lease;
mod letter;
mod message;
mod migration;
mod parked;
mod partition;
mod presence;
mod replay;
mod stream;
mod wake;
mod worker;

mod crash;
mod fence;
mod pooled;
mod process;
mod role;
mod session;
mod sqlite_file;
