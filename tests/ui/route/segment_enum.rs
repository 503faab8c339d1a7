use serde::Serialize;
use sqlstreams::RouteSegment;

#[derive(RouteSegment)]
enum WithFields {
    Eu,
    Other(String),
}

#[derive(RouteSegment)]
enum NoVariants {}

#[derive(Serialize, RouteSegment)]
#[serde(rename_all = "lowercase")]
enum SameValue {
    Eu,
    #[serde(rename = "eu")]
    Europe,
}

#[derive(RouteSegment)]
enum BadValue {
    #[route_segment("e.u")]
    Eu,
    #[route_segment]
    Us,
}

#[derive(Clone, Serialize, RouteSegment)]
#[serde(into = "String")]
enum HiddenNames {
    Eu,
}

impl From<HiddenNames> for String {
    fn from(_: HiddenNames) -> String {
        "eu".to_owned()
    }
}

fn main() {}
