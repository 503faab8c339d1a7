//! Generated code does not depend on what the names around it mean.

#![no_implicit_prelude]

#[allow(dead_code)]
mod taken {
    pub struct Option;
    pub struct Result;
    pub struct String;
    pub struct Cow;
    pub struct Route;
    pub struct Duration;
    pub struct Some;
    pub struct None;
    pub struct Ok;
    pub struct Err;
    pub struct Send;
    pub mod core {}
    pub mod std {}
    pub mod sqlstreams {}
}

mod declared {
    #[allow(unused_imports)]
    use super::taken::*;
    use ::serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, ::sqlstreams::RouteSegment)]
    #[serde(rename_all = "lowercase")]
    pub enum Region {
        Eu,
    }

    #[derive(Serialize, Deserialize, ::sqlstreams::RouteSegment)]
    pub struct Kind(pub u32);

    #[derive(Serialize, Deserialize, ::sqlstreams::Stream)]
    #[stream(name = "orders", version = 2, route = "{region}.{kind}.{problem}", key = "key")]
    pub struct Orders {
        pub region: Region,
        pub kind: Kind,
        pub problem: i64,
        pub key: u32,
    }

    #[derive(::sqlstreams::Group)]
    #[group(name = "all", stream = Orders, bind = "eu.**", keys = "exclusive", timeout = "5s")]
    pub struct All;

    pub const KEY: &str = ::sqlstreams::route!(Orders, "eu.1.x");
    pub const PATTERN: &str = ::sqlstreams::bind!(Orders, "**.x");
}

// The derive of schemars does use the names around it.
impl ::schemars::JsonSchema for declared::Orders {
    fn schema_name() -> ::std::borrow::Cow<'static, str> {
        ::std::borrow::Cow::Borrowed("Orders")
    }

    fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
        ::std::convert::From::from(true)
    }
}

fn main() {
    use ::sqlstreams::{Group, RouteSegment, Stream};

    let order = declared::Orders { region: declared::Region::Eu, kind: declared::Kind(1), problem: -2, key: 3 };
    ::std::assert_eq!(order.routing_key().unwrap().unwrap(), "eu.1.-2");
    ::std::assert_eq!(order.message_key().unwrap(), "3");
    ::std::assert_eq!(declared::Region::Eu.segment(), "eu");
    ::std::assert_eq!(declared::All::CONFIG.bindings.len(), 1);
    ::std::assert_eq!((declared::KEY, declared::PATTERN), ("eu.1.x", "**.x"));
}
