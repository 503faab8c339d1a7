use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::Stream;

mod seconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(value.as_secs())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "orders")]
struct OrderPlaced {
    #[serde(with = "seconds")]
    hidden: std::time::Duration,
    #[serde(serialize_with = "seconds::serialize", deserialize_with = "seconds::deserialize")]
    half_hidden: std::time::Duration,
    #[serde(with = "seconds")]
    #[schemars(with = "u64")]
    told: std::time::Duration,
}

fn main() {}
