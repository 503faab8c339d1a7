use sqlstreams::{Group, Handler, Stream};

/// A crate that hands `sqlstreams` on to others.
mod reexport {
    pub mod inner {
        pub use sqlstreams as streams;
    }
}

mod declared {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::reexport::inner::streams;

    #[derive(Serialize, Deserialize, JsonSchema, streams::RouteSegment)]
    #[route_segment(crate = "crate::reexport::inner::streams")]
    pub enum Region {
        Eu,
    }

    #[derive(Serialize, Deserialize, JsonSchema, streams::Stream)]
    #[stream(name = "orders", route = "{region}", crate = "crate::reexport::inner::streams")]
    pub struct OrderPlaced {
        pub region: Region,
    }

    #[derive(streams::Group)]
    #[group(name = "all", stream = OrderPlaced, bind = "Eu", crate = "crate::reexport::inner::streams")]
    pub struct All;

    pub const KEY: &str = streams::route!(OrderPlaced, "Eu", crate = "crate::reexport::inner::streams");
}

trait Mailer: Send + Sync + 'static {}

#[derive(Group)]
#[group(name = "generic", stream = declared::OrderPlaced, bind = "Eu")]
struct Receipts<M, const N: usize>(M)
where
    M: Mailer;

impl<M: Mailer, const N: usize> Handler for Receipts<M, N> {
    async fn handle(
        &self,
        _order: declared::OrderPlaced,
        _delivery: sqlstreams::Delivery,
    ) -> Result<sqlstreams::Outcome, sqlstreams::BoxError> {
        Ok(sqlstreams::Outcome::Done)
    }
}

macro_rules! group {
    ($group:ident, $name:literal, $stream:ty, $bind:literal, $retries:expr) => {
        #[derive(Group)]
        #[group(name = $name, stream = $stream, bind = $bind, retries = $retries)]
        struct $group;
    };
}

group!(ByMacro, "by-macro", declared::OrderPlaced, "*", 3);

struct Live;

impl Mailer for Live {}

fn main() {
    assert_eq!(declared::KEY, "Eu");
    assert_eq!(declared::All::CONFIG.bindings, ["Eu"]);
    assert_eq!(<Receipts<Live, 2> as Group>::NAME, "generic");
    assert_eq!(<<ByMacro as Group>::Stream as Stream>::NAME, "orders");
    assert_eq!(ByMacro::CONFIG.retry.retries, 3);
    let _ = Receipts::<_, 1>(Live);
}
