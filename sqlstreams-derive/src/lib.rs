//! The macros of [`sqlstreams`](https://docs.rs/sqlstreams), which re-exports and documents them. An
//! implementation detail: exempt from semver and pinned exactly by its users.

mod args;
mod group;
mod hint;
mod key;
mod krate;
mod literal;
mod problems;
mod segment;
mod serde_attr;
mod stream;
mod stream_fields;
#[cfg(test)]
mod tests;
mod value;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Declares a struct with named fields as one version of a stream's payload.
///
/// ```ignore
/// #[derive(Serialize, Deserialize, JsonSchema, Stream)]
/// #[stream(name = "orders.placed", version = 2, route = "orders.{region}.{kind}", key = "order_id")]
/// struct OrderPlaced { order_id: OrderId, region: Region, kind: Kind, total: Money }
/// ```
///
/// Attributes of `#[stream(..)]`, in any order and on as many lines as you like:
///
/// | attribute | meaning | without it |
/// |---|---|---|
/// | `name = "orders.placed"` | the stream's name | required |
/// | `version = 2` | the payload's version, from 1 | 1 |
/// | `route = "orders.{region}"` | the template of the routing key; each named field is a `RouteSegment` | no routing key |
/// | `key = "order_id"` | the field that is the message key, a `MessageKey` | no message key |
/// | `idempotency_key = "request_id"` | the field that is the idempotency key, a `MessageKey`: of the messages with one, the stream takes the first | no idempotency key |
/// | `from = v1::OrderPlaced` | the earlier version of the payload | the first version |
/// | `crate = "my::sqlstreams"` | the path to `sqlstreams`, for crates that re-export it | `::sqlstreams` |
#[proc_macro_derive(Stream, attributes(stream))]
pub fn derive_stream(input: TokenStream) -> TokenStream {
    stream::expand(&parse_macro_input!(input)).into()
}

/// Declares a struct as a consumer group of a stream.
///
/// ```ignore
/// #[derive(Group)]
/// #[group(name = "email-receipts", stream = OrderPlaced, bind = "orders.eu.*", keys = "ordered")]
/// struct EmailReceipts { mailer: Mailer }
/// ```
///
/// Attributes of `#[group(..)]`, in any order and on as many lines as you like:
///
/// | attribute | meaning | without it |
/// |---|---|---|
/// | `name = "email-receipts"` | the group's name | required |
/// | `stream = OrderPlaced` | the payload type that the group reads | required |
/// | `bind = "orders.eu.*"` or `bind = ["..", ".."]` | the routing keys that it handles | the whole stream |
/// | `keys = "parallel"`, `"exclusive"` or `"ordered"` | what is promised about messages of one key | `"parallel"` |
/// | `retries = 5` | how often a message is tried again | 5 |
/// | `retry_delay = "1s"` | the delay after the first failure, which then doubles | 1 s |
/// | `retry_max_delay = "5m"` | the longest delay | 5 min |
/// | `timeout = "30s"` | how long one handler call may take | 30 s |
/// | `start = "beginning"` or `"head"` | where a new group begins | `"beginning"` |
/// | `delivery_log = "off"`, `"failures"` or `"all"` | which attempts leave a row in the delivery log | `"off"` |
/// | `crate = "my::sqlstreams"` | the path to `sqlstreams`, for crates that re-export it | `::sqlstreams` |
#[proc_macro_derive(Group, attributes(group))]
pub fn derive_group(input: TokenStream) -> TokenStream {
    group::expand(&parse_macro_input!(input)).into()
}

/// Lets the values of an enum without fields, or of a tuple struct of one field, stand in a routing key.
///
/// A variant's value is what serde writes for it, so `#[serde(rename_all = "..")]` and
/// `#[serde(rename = "..")]` count; `#[route_segment("value")]` on a variant overrides it. A struct stands
/// for the type inside.
#[proc_macro_derive(RouteSegment, attributes(route_segment))]
pub fn derive_route_segment(input: TokenStream) -> TokenStream {
    segment::expand(&parse_macro_input!(input)).into()
}

/// Lets a tuple struct of one field be a message key: that of the type inside.
#[proc_macro_derive(MessageKey, attributes(message_key))]
pub fn derive_message_key(input: TokenStream) -> TokenStream {
    key::expand(&parse_macro_input!(input)).into()
}

/// Returns a routing key, a `&'static str`, that is checked on the stream's route at compile time:
/// `route!(OrderPlaced, "orders.eu.created")`.
#[proc_macro]
pub fn route(input: TokenStream) -> TokenStream {
    literal::expand_route(input.into()).into()
}

/// Returns a pattern, a `&'static str`, that is checked at compile time to match some routing key of the
/// stream: `bind!(OrderPlaced, "orders.eu.*")`.
#[proc_macro]
pub fn bind(input: TokenStream) -> TokenStream {
    literal::expand_bind(input.into()).into()
}
