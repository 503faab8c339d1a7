//! What it costs to get one fresh message: claim, read and settle on the port, against the number of
//! partitions and against the age of a snapshot that somebody holds.

use std::time::{Duration, Instant};

use sqlstreams::{Client, GroupName, StreamName};
use sqlstreams_runtime::backend::{
    Backend, ClaimParams, GroupParams, PresenceParams, ReadParams, StartParams, StreamParams,
};
use sqlstreams_runtime::identity::{GroupId, LeaseToken, PresenceId, StreamId};
use sqlstreams_runtime::message::NewMessage;

use crate::options::Options;
use crate::payload;
use crate::run::{Result, median, say};
use crate::yardstick::Yardstick;

/// Ids a partition: more than the claims of one stream.
const PARTITION_SIZE: i64 = 200_000;
/// Claims that are not counted.
const WARM_UP: usize = 50;
/// Between two claims under the held snapshot: 200 a second.
const EVERY: Duration = Duration::from_millis(5);
/// How long a message may take to be claimed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Microseconds a message, by the number of partitions in use.
pub async fn partitions<Db: Yardstick>(place: &Db::Place, options: &Options) -> Result<Vec<(i64, f64)>> {
    let setting = Db::open(place).await?;
    let backend = Db::backend(setting.client.pool().clone(), Db::NAMESPACE, false)?;
    let mut groups = Vec::new();
    for &used in Db::PARTITIONS {
        let stream = register(&backend, &format!("bench.partitions{used}")).await?;
        Db::partition(setting.client.pool(), stream, used).await?;
        groups.push(ClaimingGroup::join(&backend, stream).await?);
    }
    let medians = in_turns(&backend, &groups, options.claims).await?;
    backend.close().await;
    setting.close().await;
    let all: Vec<_> = Db::PARTITIONS.iter().copied().zip(medians).collect();
    say(format_args!("claims by partitions: {all:.0?}"));
    Ok(all)
}

/// Microseconds a message.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Before the snapshot was taken.
    pub before: f64,
    /// At the end, with the snapshot still held.
    pub after: f64,
    /// At the end, on a stream that is new.
    pub fresh: f64,
}

/// Claims go on at 200 a second while another connection holds its snapshot.
pub async fn held<Db: Yardstick>(place: &Db::Place, options: &Options) -> Result<Held> {
    let setting = Db::open(place).await?;
    let backend = Db::backend(setting.client.pool().clone(), Db::NAMESPACE, false)?;
    let stream = register(&backend, "bench.held").await?;
    let old = ClaimingGroup::join(&backend, stream).await?;
    // Turns with another stream, as after: a claim finds the same in the processor's caches.
    let stream = register(&backend, "bench.beside").await?;
    let groups = [old, ClaimingGroup::join(&backend, stream).await?];
    let before = in_turns(&backend, &groups, options.claims).await?[0];
    let [old, _beside] = groups;

    let holder = Client::<Db>::connect(&setting.url).await?;
    let snapshot = Db::hold(holder.pool()).await?;
    let start = Instant::now();
    let mut ticks = tokio::time::interval(EVERY);
    let (mut claims, mut minute) = (0_u64, 0);
    while start.elapsed() < options.held {
        ticks.tick().await;
        let took = old.take_one(&backend).await?;
        claims += 1;
        if start.elapsed().as_secs() / 60 > minute {
            minute += 1;
            say(format_args!("snapshot held for {minute} min, {claims} claims, the last took {took:?}"));
        }
    }
    let stream = register(&backend, "bench.fresh").await?;
    let fresh = ClaimingGroup::join(&backend, stream).await?;
    let medians = in_turns(&backend, &[old, fresh], options.claims).await?;
    snapshot.rollback().await?;
    holder.pool().close().await;
    holder.close().await;
    backend.close().await;
    setting.close().await;
    let held = Held { before, after: medians[0], fresh: medians[1] };
    say(format_args!("claims under a held snapshot, {claims} of them: {held:.0?}"));
    Ok(held)
}

/// The medians of `claims` claims of each group, in microseconds; the groups take turns.
async fn in_turns<B: Backend>(backend: &B, groups: &[ClaimingGroup], claims: usize) -> Result<Vec<f64>> {
    let mut took = vec![Vec::with_capacity(claims); groups.len()];
    for number in 0..WARM_UP + claims {
        for (group, took) in groups.iter().zip(&mut took) {
            let one = group.take_one(backend).await?;
            if number >= WARM_UP {
                took.push(one.as_secs_f64() * 1e6);
            }
        }
    }
    Ok(took.into_iter().map(median).collect())
}

async fn register<B: Backend>(backend: &B, name: &str) -> Result<StreamId> {
    let params = StreamParams {
        name: StreamName::new(name).map_err(|problem| problem.to_string())?,
        message_key: None,
        partition_size: PARTITION_SIZE,
        schema_version: 1,
        codec: 0,
        shape: "{}".to_owned(),
        shape_hash: [0; 32],
        json_schema: "{}".to_owned(),
    };
    Ok(backend.stream_register(&params).await?.id)
}

/// A group that claims by hand.
struct ClaimingGroup {
    stream: StreamId,
    group: GroupId,
    presence: PresenceId,
}

impl ClaimingGroup {
    async fn join<B: Backend>(backend: &B, stream: StreamId) -> Result<Self> {
        let group = GroupParams {
            stream,
            name: GroupName::new("bench").map_err(|problem| problem.to_string())?,
            key_policy: "parallel",
            retry: "{}".to_owned(),
            timeout: Duration::from_secs(30),
            delivery_log: "off",
            bindings: Vec::new(),
            presence: None,
            start: StartParams::Head,
        };
        let group = backend.group_register(&group).await?.id;
        let presence = PresenceParams {
            id: PresenceId::mint(),
            build: env!("CARGO_PKG_VERSION"),
            process: "bench".to_owned(),
            readable: "[]".to_owned(),
            ttl: Duration::from_secs(24 * 60 * 60),
        };
        backend.presence_enter(&presence).await?;
        Ok(Self { stream, group, presence: presence.id })
    }

    /// Produces a message and returns the time of what follows: claims until it is taken, the read, and the
    /// settlement.
    async fn take_one<B: Backend>(&self, backend: &B) -> Result<Duration> {
        let message = NewMessage {
            payload: payload::encoded_batch(1)?.remove(0),
            routing_key: None,
            message_key: None,
            headers: None,
        };
        let id = backend.message_produce(self.stream, 1, 0, &[message]).await?[0];
        let start = Instant::now();
        let mut claim = self.claim(1, Vec::new());
        let row = loop {
            let row = backend.claim_take(&claim).await?;
            if row.high > row.low {
                break row;
            }
            if start.elapsed() > PATIENCE {
                return Err("a message was not claimed".into());
            }
            claim.token = LeaseToken::mint();
        };
        let read = ReadParams {
            stream: self.stream,
            low: row.low,
            high: row.high,
            versions: vec![1],
            only_version: None,
            bindings: Vec::new(),
        };
        let messages = backend.message_read(&read).await?;
        backend.claim_take(&self.claim(0, vec![claim.token])).await?;
        let took = start.elapsed();
        if messages.len() != 1 || messages[0].id != id {
            return Err("a claim read another message than the one that was produced".into());
        }
        Ok(took)
    }

    fn claim(&self, width: i64, settled: Vec<LeaseToken>) -> ClaimParams {
        ClaimParams {
            stream: self.stream,
            group: self.group,
            presence: self.presence,
            token: LeaseToken::mint(),
            width,
            settled,
            durable: false,
        }
    }
}
