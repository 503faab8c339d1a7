//! What the port takes and answers about maintenance tasks.

use crate::identity::{GroupId, PresenceId, StreamId, WorkerId, WorkerToken};
use crate::time::Timestamp;

/// The names of the workers that this build runs.
#[derive(Clone, Copy, Debug)]
pub struct WorkerNames {
    /// One of each for every stream.
    pub of_streams: &'static [&'static str],
    /// One of each for every group.
    pub of_groups: &'static [&'static str],
}

/// A look at the workers of the installation.
#[derive(Clone, Debug)]
pub struct WorkerLookParams {
    /// The process that looks; its presence is its right to run workers.
    pub owner: PresenceId,
    /// What it runs.
    pub held: Vec<WorkerToken>,
    /// What it can run.
    pub names: WorkerNames,
    /// The time, for tests.
    pub now: Option<Timestamp>,
}

/// What a look at the workers found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerLookRow {
    /// Workers that the process can take.
    pub free: Vec<WorkerRow>,
    /// What it must give up: taken over, suspended or removed.
    pub lost: Vec<WorkerToken>,
    /// Some streams or groups have workers that are not declared yet.
    pub undeclared: bool,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    /// Its id.
    pub id: WorkerId,
    /// What it does.
    pub name: String,
    /// The stream that it works for.
    pub stream: StreamId,
    /// The group, for a worker of one.
    pub group: Option<GroupId>,
}

/// A worker and who runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStateRow {
    /// Its id.
    pub id: WorkerId,
    /// What it does.
    pub name: String,
    /// The stream that it works for.
    pub stream: Option<String>,
    /// The group, for a worker of one.
    pub group: Option<String>,
    /// How many processes are to run it: 0 when it is suspended, -1 for every one.
    pub target: i32,
    /// How many do.
    pub running: i64,
}
