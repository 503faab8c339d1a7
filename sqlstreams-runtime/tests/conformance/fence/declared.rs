//! Two streams with a group each, as an application declares them.

use sqlstreams_runtime::schema::{GroupConfig, Route};
use sqlstreams_runtime::{Group, SegmentError, Stream};

macro_rules! stream_with_group {
    ($stream:ident, $name:literal, $group:ident) => {
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub struct $stream {
            pub n: u64,
        }

        impl Stream for $stream {
            const NAME: &'static str = $name;
            const VERSION: u32 = 1;
            const ROUTE: Route = Route::NONE;
            const KEY: Option<&'static str> = None;

            fn routing_key(&self) -> Result<Option<String>, SegmentError> {
                Ok(None)
            }

            fn message_key(&self) -> Option<String> {
                None
            }
        }

        pub struct $group;

        impl Group for $group {
            type Stream = $stream;
            const NAME: &'static str = "readers";
            const CONFIG: GroupConfig = GroupConfig::DEFAULT;
        }
    };
}

stream_with_group!(Note, "notes", NoteReaders);
stream_with_group!(Order, "orders", OrderReaders);
