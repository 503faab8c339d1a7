//! Turns the declarations of `sqlstreams` into Rust. An implementation detail of
//! [`sqlstreams`](https://docs.rs/sqlstreams): exempt from semver and pinned exactly by its users.
//!
//! It knows no file, no attribute and no database: two doors fill the same declarations, and what they emit
//! is the same. Besides `::core`, the emitted code names nothing outside `<crate>::__private`, which offers
//! all of `sqlstreams_schema`, the traits `Stream`, `Group`, `RouteSegment` and `MessageKey`, `SegmentError`,
//! and of the standard library `Cow`, `Option`, `Result` and `String`.

mod declaration;
mod expand;

pub use crate::declaration::{
    FieldDeclaration, GroupDeclaration, LiteralDeclaration, NewtypeDeclaration, RouteDeclaration,
    RouteSegmentDeclaration, SegmentDeclaration, Spanned, StreamDeclaration,
};
pub use crate::expand::group::{expand_group, expand_group_fallback};
pub use crate::expand::literal::{expand_pattern, expand_routing_key};
pub use crate::expand::newtype::{expand_message_key, expand_message_key_fallback, expand_newtype_segment};
pub use crate::expand::segment::{expand_segment, expand_segment_fallback};
pub use crate::expand::stream::{expand_stream, expand_stream_fallback};
