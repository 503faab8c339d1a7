//! What a `sqlstreams` declaration is: names, routing keys and binding patterns, policies, payload
//! shapes. An implementation detail of [`sqlstreams`](https://docs.rs/sqlstreams): exempt from semver and
//! pinned exactly by its users.
//!
//! Pure: no I/O, no database, no macros. What a user's crate evaluates at compile time (names, routes,
//! patterns, the `assert_` functions) is `const fn` and uses no heap, because a derive sees a path to
//! another type and not that type's attributes.

mod assert;
mod automaton;
mod declaration;
mod duration;
mod name;
mod pattern;
mod policy;
mod route;
mod sentence;
mod shape;
mod shape_difference;
mod template;
mod text;

pub use crate::assert::{
    assert_binding, assert_earlier_version, assert_key_policy, assert_pattern, assert_routing_key,
};
pub use crate::declaration::{ConfigProblem, GroupConfig, Start};
pub use crate::duration::{DurationProblem, parse_duration};
pub use crate::name::{MAX_NAME_BYTES, NameProblem, check_group_name, check_stream_name};
pub use crate::pattern::{PatternProblem, check_pattern, pattern_matches, pattern_to_regex};
pub use crate::policy::{DeliveryLog, KeyPolicy, RetryPolicy};
pub use crate::route::{MAX_SEGMENT_BYTES, MAX_SEGMENTS, Route, RoutePart, SegmentProblem, check_segment};
pub use crate::sentence::Sentence;
pub use crate::shape::{Shape, ShapeProblem};
pub use crate::template::{TemplatePart, TemplateProblem, TemplateProblemKind, parse_template};
