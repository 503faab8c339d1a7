use sqlstreams::RouteSegment;

#[derive(RouteSegment)]
struct Named {
    region: String,
}

#[derive(RouteSegment)]
struct Two(String, String);

#[derive(RouteSegment)]
struct Unit;

#[derive(RouteSegment)]
struct Generic<T>(T);

#[derive(RouteSegment)]
struct Inside(f64);

fn main() {}
