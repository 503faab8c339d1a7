//! Groups that exist are moved: back, so that they handle messages again, or forward.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use sqlstreams_schema::KeyPolicy;
use tokio::time::Instant;

use crate::backend::{ReplayParams, ReplayRow, ReplayTouched, ReplayWay, StartParams};
use crate::error::{Error, Kind, Recovery};
use crate::group::Group;
use crate::hub::Hub;
use crate::identity::{GroupId, MessageId, StreamId};
use crate::store::Store;
use crate::time::Timestamp;

/// How long the handlers of a group whose messages exclude each other by key may take to end before it is rewound.
const DRAIN: Duration = Duration::from_secs(30);
/// How long a move forward waits for open transactions.
const PROOF: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
/// The pause outlasts the drain by this much; it ends by itself only when this process is lost.
const SLACK: Duration = Duration::from_secs(10);
const REPEATS: u32 = 5;

/// Moves group `G`. Made by `Client::replay`; cheap to clone.
///
/// ```
/// # use sqlstreams_runtime::{Error, Group, Timestamp};
/// # use sqlstreams_runtime::replay::{Place, Replay, RewindOptions};
/// # async fn example<G: Group>(replay: Replay<G>, yesterday: Timestamp) -> Result<(), Error> {
/// let plan = replay.dry_run(Place::Time(yesterday)).await?;
/// println!("{} messages would be handled again, and {} dead letters go", plan.messages, plan.touched.dead_letters);
/// let moved = replay.rewind(Place::Time(yesterday), RewindOptions::default()).await?;
/// println!("the group goes on after message {}", moved.to);
/// # Ok(())
/// # }
/// ```
pub struct Replay<G: Group> {
    store: Store,
    hub: Arc<Hub>,
    stream: StreamId,
    group: GroupId,
    payload: PhantomData<fn(&G)>,
}

impl<G: Group> Clone for Replay<G> {
    fn clone(&self) -> Self {
        Self::new(self.store.clone(), Arc::clone(&self.hub), self.stream, self.group)
    }
}

/// A place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Before the first stored message.
    Beginning,
    /// Before this message: it is the first one that the group gets.
    Id(MessageId),
    /// Before the first message that was produced at this time or later, by the database's clock.
    Time(Timestamp),
    /// After the newest message.
    Head,
}

impl Place {
    fn start(self) -> StartParams {
        match self {
            Self::Beginning => StartParams::Beginning,
            Self::Id(id) => StartParams::Id(id),
            Self::Time(time) => StartParams::Time(time),
            Self::Head => StartParams::Head,
        }
    }
}

/// How a group is rewound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RewindOptions {
    /// Dead letters above the place stay until their messages are handled again. Otherwise they go at once.
    pub keep_dead_letters: bool,
    /// What becomes of running handlers.
    pub drain: Drain,
}

/// What becomes of handlers that run when a group is rewound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drain {
    /// An ordered or exclusive group is drained for half a minute, another one is not.
    #[default]
    ByKeys,
    /// The group starts nothing new, and is rewound when its handlers have ended; not at all when they take longer.
    Within(Duration),
    /// The group is rewound at once. Handlers that run are dropped when their process notices, at the latest after a
    /// quarter of its lease; until then one may run beside the replay.
    Force,
}

impl RewindOptions {
    /// Keeps dead letters until their messages are handled again.
    pub fn keep_dead_letters(self) -> Self {
        Self { keep_dead_letters: true, ..self }
    }

    /// Says what becomes of running handlers.
    pub fn drain(self, drain: Drain) -> Self {
        Self { drain, ..self }
    }
}

/// How a group is moved forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastForwardOptions {
    /// Messages in trouble that wait for another run go as well; dead letters and what is being handled fresh stay.
    pub discard_waiting: bool,
    /// How long to wait for transactions that may still fill in ids below the place: 5 seconds unless set.
    pub wait: Duration,
}

impl Default for FastForwardOptions {
    fn default() -> Self {
        Self { discard_waiting: false, wait: PROOF }
    }
}

impl FastForwardOptions {
    /// Removes messages in trouble that wait for another run.
    pub fn discard_waiting(self) -> Self {
        Self { discard_waiting: true, ..self }
    }

    /// Says how long to wait for open transactions.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }
}

/// What a move would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayPlan {
    /// The group has been given everything up to here.
    pub from: MessageId,
    /// The group would go on after this message.
    pub to: MessageId,
    /// How many stored messages lie between: on the way back those that the group is given again, whether its bindings
    /// match them or not; on the way forward *at least* so many are skipped, since open transactions may add some.
    pub messages: u64,
    /// The place lies before the first stored message, which is this one.
    pub below_first: Option<MessageId>,
    /// The place lies after what can be passed yet: open transactions may still fill in ids.
    pub beyond_proof: bool,
    /// What else a rewind touches; nothing on the way forward.
    pub touched: ReplayTouched,
    /// Ranges and messages in trouble above the place that living processes handle now.
    pub running: u64,
}

/// What a move did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// The group had been given everything up to here.
    pub from: MessageId,
    /// The group goes on after this message.
    pub to: MessageId,
    /// The place lies before the first stored message, which is this one.
    pub below_first: Option<MessageId>,
    /// The place lies after what could be passed: call it again when the open transactions have ended.
    pub beyond_proof: bool,
    /// What else was touched.
    pub touched: ReplayTouched,
}

impl<G: Group> Replay<G> {
    pub(crate) fn new(store: Store, hub: Arc<Hub>, stream: StreamId, group: GroupId) -> Self {
        Self { store, hub, stream, group, payload: PhantomData }
    }

    /// What a move to `place` would do now; changes nothing. It counts the messages between, which takes a while for
    /// millions.
    ///
    /// # Errors
    /// A database that can't be reached.
    pub async fn dry_run(&self, place: Place) -> Result<ReplayPlan, Error> {
        self.store.cursor_observe(self.stream, &[self.group]).await?;
        let way = ReplayWay::Back { keep_dead_letters: false, only_idle: false };
        let row = self.store.replay_look(&self.params(place, way)).await?;
        let back = row.wanted < row.claimed;
        Ok(ReplayPlan {
            from: MessageId(row.claimed),
            to: MessageId(row.target),
            messages: row.messages,
            below_first: below_first(&row),
            beyond_proof: row.target < row.wanted && !back,
            touched: if back { row.touched } else { ReplayTouched::default() },
            running: if back { row.running } else { 0 },
        })
    }

    /// Moves the group back to `place`: it is given everything above once more, as if for the first time, with
    /// [`Delivery::is_replay`](crate::Delivery::is_replay). In one durable transaction, what was claimed above is taken
    /// from its owners, who record nothing any more, and messages in trouble above are forgotten. Effects of handlers
    /// happen again. A message below the place keeps its state.
    ///
    /// The group goes no further back than to the first stored message.
    ///
    /// # Errors
    /// A place that is not behind the group (`SQLS-0520`). Handlers that did not end in time (`SQLS-0521`). Dead letters
    /// to be kept in an ordered group (`SQLS-0522`). In these cases nothing is changed. A database that can't be reached:
    /// [`Error::outcome_known`] tells whether the group may be moved all the same.
    ///
    /// # Cancellation
    /// A dropped call may or may not have moved the group. One that was draining leaves it paused until the time for
    /// draining is over.
    pub async fn rewind(&self, place: Place, options: RewindOptions) -> Result<Replayed, Error> {
        if G::CONFIG.keys == KeyPolicy::Ordered && options.keep_dead_letters {
            return Err(Error::new(
                Kind::Declaration,
                "SQLS-0522",
                format!(
                    "group \"{}\" runs keys in order, and a dead letter can't stay beside a key's replay - rewind without \
                     keeping dead letters",
                    G::NAME
                ),
            ));
        }
        let drain = match options.drain {
            Drain::ByKeys => (G::CONFIG.keys != KeyPolicy::Parallel).then_some(DRAIN),
            Drain::Within(wait) => Some(wait),
            Drain::Force => None,
        };
        let way = ReplayWay::Back { keep_dead_letters: options.keep_dead_letters, only_idle: drain.is_some() };
        let params = self.params(place, way);
        let row = match drain {
            None => self.go(&params).await?,
            Some(wait) => self.drained(&params, wait).await?,
        };
        if row.wanted >= row.claimed && !row.moved {
            return Err(wrong_way::<G>(&row, "behind", "move it forward with `fast_forward`"));
        }
        Ok(self.told(&row))
    }

    /// Moves the group forward to `place`: it skips what lies between, also what open transactions may still add there
    /// before the group passes them. What is being handled ends as usual, and messages in trouble stay unless
    /// `options` say otherwise. Durable.
    ///
    /// The group goes no further than to where nothing can be filled in any more; the answer says when that is not the
    /// place.
    ///
    /// # Errors
    /// A place that is not ahead of the group (`SQLS-0520`): nothing is changed. A database that can't be reached:
    /// [`Error::outcome_known`] tells whether the group may be moved all the same.
    ///
    /// # Cancellation
    /// A dropped call may or may not have moved the group.
    pub async fn fast_forward(&self, place: Place, options: FastForwardOptions) -> Result<Replayed, Error> {
        let way = ReplayWay::Forward { discard_waiting: options.discard_waiting };
        // The head moves on while this waits: what was meant is the one of now.
        let first = self.store.replay_look(&self.params(place, way)).await?;
        let params =
            ReplayParams { to: StartParams::Id(MessageId(first.wanted.saturating_add(1))), ..self.params(place, way) };
        if first.wanted <= first.claimed {
            return Err(wrong_way::<G>(&first, "ahead of", "move it back with `rewind`"));
        }
        let until = Instant::now() + options.wait;
        loop {
            self.store.cursor_observe(self.stream, &[self.group]).await?;
            let row = self.store.replay_look(&params).await?;
            if row.target >= row.wanted.min(row.head) || Instant::now() >= until {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        let row = self.go(&params).await?;
        Ok(self.told(&row))
    }

    fn params(&self, place: Place, way: ReplayWay) -> ReplayParams {
        ReplayParams { stream: self.stream, group: self.group, to: place.start(), way }
    }

    /// Moves the group; again after a deadlock and the like, which changed nothing.
    async fn go(&self, params: &ReplayParams) -> Result<ReplayRow, Error> {
        let mut number = 0;
        loop {
            match self.store.replay_move(params).await {
                Err(err) if err.recovery() == Recovery::Transient && err.outcome_known() && number < REPEATS => {
                    number += 1;
                    tokio::time::sleep(LOOK).await;
                }
                moved => return moved,
            }
        }
    }

    /// Moves the group when nothing runs any more.
    async fn drained(&self, params: &ReplayParams, wait: Duration) -> Result<ReplayRow, Error> {
        self.store.replay_pause(self.stream, self.group, Some(wait.saturating_add(SLACK))).await?;
        let until = Instant::now() + wait;
        let moved = loop {
            match self.go(params).await {
                Ok(row) if row.running > 0 && !row.moved && Instant::now() < until => tokio::time::sleep(LOOK).await,
                Ok(row) if row.running > 0 && !row.moved => break Err(busy::<G>(&row, wait)),
                moved => break moved,
            }
        };
        if !moved.as_ref().is_ok_and(|row| row.moved) {
            // The move ends the pause.
            self.store.replay_pause(self.stream, self.group, None).await?;
            self.wake();
        }
        moved
    }

    fn told(&self, row: &ReplayRow) -> Replayed {
        self.wake();
        Replayed {
            from: MessageId(row.claimed),
            to: MessageId(row.target),
            below_first: below_first(row),
            beyond_proof: row.target < row.wanted && row.wanted > row.claimed,
            touched: row.touched,
        }
    }

    /// Consumers look at once.
    fn wake(&self) {
        self.hub.produced(self.stream);
    }
}

/// The first stored message, when the place lies before it.
fn below_first(row: &ReplayRow) -> Option<MessageId> {
    row.first.filter(|first| row.wanted < row.claimed && row.wanted < first - 1 && row.wanted > 0).map(MessageId)
}

fn wrong_way<G: Group>(row: &ReplayRow, side: &str, way_out: &str) -> Error {
    Error::new(
        Kind::Declaration,
        "SQLS-0520",
        format!(
            "group \"{}\" stands after message {}, and the place, after message {}, is not {side} it - {way_out}",
            G::NAME,
            row.claimed,
            row.wanted
        ),
    )
}

fn busy<G: Group>(row: &ReplayRow, wait: Duration) -> Error {
    Error::new(
        Kind::Unavailable,
        "SQLS-0521",
        format!(
            "group \"{}\" was not rewound, since {} of its ranges and messages in trouble were still being handled after \
             {wait:?} - wait for longer, or rewind with `Drain::Force`",
            G::NAME,
            row.running
        ),
    )
}
