use sqlstreams::{Group, Stream};

#[derive(Group)]
#[group(name = "missing")]
struct Missing;

#[derive(Group)]
#[group(name = "quoted", stream = "OrderPlaced")]
struct Quoted;

#[derive(Group)]
#[group(name = "parameter", stream = S)]
struct Parameter<S: Stream>(S);

fn main() {}
