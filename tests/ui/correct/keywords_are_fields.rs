use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlstreams::{Group, RouteSegment, Stream};

#[derive(Serialize, Deserialize, JsonSchema, RouteSegment)]
#[allow(non_camel_case_types)]
enum Kind {
    r#loop,
    Größe,
}

#[derive(Serialize, Deserialize, JsonSchema, Stream)]
#[stream(name = "events", route = "{type}.{self_}", key = "match")]
struct Event {
    r#type: Kind,
    r#match: String,
    self_: String,
}

#[derive(Group)]
#[group(name = "loops", stream = Event, bind = ["loop.*", "Größe.x"])]
struct r#Loops;

fn main() {
    let event = Event { r#type: Kind::r#loop, r#match: "key".to_owned(), self_: "größe".to_owned() };
    assert_eq!(event.routing_key().unwrap().unwrap(), "loop.größe");
    assert_eq!(event.message_key().unwrap(), "key");
    assert_eq!(Event::KEY, Some("match"));
    assert_eq!(Kind::VALUES, Some(&["loop", "Größe"][..]));
    assert_eq!(Loops::NAME, "loops");
}
