//! Registration: what a declaration says meets what is stored.

use std::time::Duration;

use sqlstreams_schema::{GroupConfig, RetryPolicy, Shape, Start};

use crate::backend::{GroupParams, GroupRow, StartParams, StreamParams};
use crate::error::{Error, Kind};
use crate::identity::{GroupName, MessageId, PresenceId, StreamId, StreamName};
use crate::message::{Codec, Stream};
use crate::store::Store;
use crate::time::Timestamp;

/// Ids a partition of a stream that declares no size.
pub(crate) const PARTITION_SIZE: i64 = 1_000_000;

/// Registers `S`, or joins what is stored.
///
/// A build that declares another shape for a stored version is refused, with the difference.
pub(crate) async fn stream<S: Stream>(store: &Store, partition_size: i64) -> Result<StreamId, Error> {
    let declared = StreamName::new(S::NAME).map_err(|problem| {
        Error::new(Kind::Declaration, "SQLS-0305", format!("stream name {:?} is not usable: {problem}", S::NAME))
    })?;
    let (shape, json_schema) = shape::<S>();
    let params = StreamParams {
        name: declared,
        message_key: S::KEY.map(str::to_owned),
        partition_size,
        schema_version: S::VERSION,
        codec: Codec::Json.number(),
        shape: shape.to_json(),
        shape_hash: shape.hash(),
        json_schema,
    };
    let stored = store.stream_register(&params).await?;
    if stored.message_key != params.message_key {
        return Err(Error::new(
            Kind::Declaration,
            "SQLS-0306",
            format!(
                "stream \"{}\" is stored with {} and declared with {} - a stream's key can't change; use another stream",
                S::NAME,
                key(stored.message_key.as_deref()),
                key(S::KEY)
            ),
        ));
    }
    if stored.shape != params.shape {
        return Err(other_shape::<S>(&shape, &stored.shape));
    }
    if stored.codec != params.codec {
        return Err(Error::new(
            Kind::Declaration,
            "SQLS-0308",
            format!(
                "version {} of stream \"{}\" is stored with codec {}, and this build writes codec {} - raise the version",
                S::VERSION,
                S::NAME,
                stored.codec,
                params.codec
            ),
        ));
    }
    Ok(stored.id)
}

fn key(field: Option<&str>) -> String {
    field.map_or_else(|| "no key".to_owned(), |field| format!("key `{field}`"))
}

fn other_shape<S: Stream>(declared: &Shape, stored: &str) -> Error {
    let difference = Shape::parse(stored).ok().and_then(|stored| declared.difference(&stored));
    let difference = difference.unwrap_or_else(|| "the stored shape is not readable by this build".to_owned());
    Error::new(
        Kind::Declaration,
        "SQLS-0307",
        format!(
            "version {} of stream \"{}\" is stored with another shape: {difference} - a released version's shape is \
             frozen; declare version {} for the new shape",
            S::VERSION,
            S::NAME,
            S::VERSION.saturating_add(1)
        ),
    )
}

/// The payload's normalised shape, and its JSON Schema for people.
fn shape<S: Stream>() -> (Shape, String) {
    let schema = schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<S>();
    let value = schema.to_value();
    (Shape::from_json_schema(&value), value.to_string())
}

/// Registers a group on a registered stream, or joins it. `presence`: the process that will consume, if one will.
pub(crate) async fn group(
    store: &Store,
    stream: StreamId,
    name: &'static str,
    config: &GroupConfig,
    start: Start,
    presence: Option<PresenceId>,
) -> Result<GroupRow, Error> {
    let declared = GroupName::new(name).map_err(|problem| {
        Error::new(Kind::Declaration, "SQLS-0309", format!("group name {name:?} is not usable: {problem}"))
    })?;
    let params = GroupParams {
        stream,
        name: declared,
        key_policy: config.keys.as_str(),
        retry: retry(&config.retry),
        timeout: config.timeout,
        delivery_log: config.delivery_log.as_str(),
        bindings: config.bindings.iter().map(|&pattern| pattern.to_owned()).collect(),
        presence,
        start: match start {
            Start::Beginning => StartParams::Beginning,
            Start::Head => StartParams::Head,
            Start::Id(id) => StartParams::Id(MessageId(id)),
            Start::Time(micros) => StartParams::Time(Timestamp(micros)),
        },
    };
    let stored = store.group_register(&params).await?;
    if stored.key_policy != params.key_policy {
        return Err(Error::new(
            Kind::Declaration,
            "SQLS-0311",
            format!(
                "group \"{name}\" is stored with keys = \"{}\" and declared with \"{}\" - a group's key policy can't change; use another group",
                stored.key_policy, params.key_policy
            ),
        ));
    }
    Ok(stored)
}

fn retry(policy: &RetryPolicy) -> String {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    serde_json::json!({
        "retries": policy.retries,
        "first_delay_ms": millis(policy.first_delay),
        "max_delay_ms": millis(policy.max_delay),
        "factor": policy.factor,
        "jitter_percent": policy.jitter_percent,
    })
    .to_string()
}
