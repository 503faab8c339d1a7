//! What the integration tests stand on: servers, databases, files and child processes of their own.
//!
//! Include it with `#[path = "../support/mod.rs"] mod support;` at the top of a test program, and in one of
//! them also `#[path = "../support/self_test.rs"] mod self_test;`. Nothing here waits for a time to pass: it
//! waits for the thing itself.
#![allow(dead_code)] // every test program uses its own part of it

pub mod child;
pub mod cluster;
pub mod database;
pub mod pgbouncer;
