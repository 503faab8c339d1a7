//! What the port says about moving a group that exists: back, so that it handles messages again, or forward.

use super::StartParams;
use crate::identity::{GroupId, StreamId};

/// Which way a group may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayWay {
    /// It handles messages again.
    Back {
        /// Dead letters above the target stay.
        keep_dead_letters: bool,
        /// Nothing is moved while a handler runs above the target.
        only_idle: bool,
    },
    /// It skips messages.
    Forward {
        /// Messages in trouble that are not dead go as well.
        discard_waiting: bool,
    },
}

/// Where a group is to go.
#[derive(Clone, Copy, Debug)]
pub struct ReplayParams {
    /// The stream.
    pub stream: StreamId,
    /// The group.
    pub group: GroupId,
    /// The place, as a new group begins there.
    pub to: StartParams,
    /// Nothing is moved when the place lies the other way.
    pub way: ReplayWay,
}

/// What a move touches, or touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayTouched {
    /// Claimed ranges above the target: their owners lose them.
    pub ranges: u64,
    /// Claimed ranges across the target: their owners lose them, and the part below the target is handled by others.
    pub ranges_cut: u64,
    /// Messages above the target that wait for another run, or have it.
    pub waiting: u64,
    /// Keys in trouble above the target.
    pub lanes: u64,
    /// Keys in trouble below the target whose later messages above it wait behind them.
    pub lanes_cut: u64,
    /// Dead letters above the target.
    pub dead_letters: u64,
    /// Ranges above the target that wait for another build.
    pub parked: u64,
    /// Ranges across the target that wait for another build.
    pub parked_cut: u64,
}

/// A move, or what it would be.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayRow {
    /// Handed out up to here, before.
    pub claimed: i64,
    /// Where the place is that was asked for.
    pub wanted: i64,
    /// Handed out up to here, after: as near to `wanted` as it can be.
    pub target: i64,
    /// The first stored message.
    pub first: Option<i64>,
    /// The newest id that was drawn.
    pub head: i64,
    /// Stored messages between `claimed` and `target`; only a look counts them.
    pub messages: u64,
    /// What else is touched.
    pub touched: ReplayTouched,
    /// Ranges and messages in trouble above the target that a living process handles.
    pub running: u64,
    /// The group was moved.
    pub moved: bool,
}

impl ReplayParams {
    /// Whether a group that stands at `claimed` may go where `wanted` is.
    pub(crate) fn goes(&self, claimed: i64, wanted: i64) -> bool {
        match self.way {
            ReplayWay::Back { .. } => wanted < claimed,
            ReplayWay::Forward { .. } => wanted > claimed,
        }
    }
}
