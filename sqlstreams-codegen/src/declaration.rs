use proc_macro2::Span;
use sqlstreams_schema::GroupConfig;
use syn::ext::IdentExt;
use syn::{Generics, Ident, Path, Type};

/// A value with the place where the user wrote it.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where errors about it belong.
    pub span: Span,
}

/// One version of a stream's payload.
#[derive(Clone, Debug)]
pub struct StreamDeclaration {
    /// The payload's type, without generic parameters.
    pub ident: Ident,
    /// The path to `sqlstreams`.
    pub krate: Path,
    /// The stream's name.
    pub name: String,
    /// The payload's version, from 1.
    pub version: u32,
    /// What makes the routing key.
    pub route: Option<RouteDeclaration>,
    /// The field that is the message key.
    pub key: Option<FieldDeclaration>,
    /// The field that is the idempotency key.
    pub idempotency_key: Option<FieldDeclaration>,
    /// The earlier version of the payload.
    pub from: Option<Path>,
}

/// What makes a stream's routing keys.
#[derive(Clone, Debug)]
pub struct RouteDeclaration {
    /// The template as written.
    pub template: String,
    /// Its segments.
    pub segments: Vec<RouteSegmentDeclaration>,
}

/// One segment of a route.
#[derive(Clone, Debug)]
pub enum RouteSegmentDeclaration {
    /// A text that every key has here.
    Literal(String),
    /// The value of a field.
    Field(Box<FieldDeclaration>),
}

/// A field of the payload that makes a key.
#[derive(Clone, Debug)]
pub struct FieldDeclaration {
    /// The field as Rust code names it.
    pub ident: Ident,
    /// The field's type, on whose tokens a missing trait is reported.
    pub ty: Type,
}

impl FieldDeclaration {
    /// Returns the field's name without `r#`.
    pub fn name(&self) -> String {
        self.ident.unraw().to_string()
    }
}

/// A consumer group.
#[derive(Clone, Debug)]
pub struct GroupDeclaration {
    /// The group's type.
    pub ident: Ident,
    /// The generic parameters of that type.
    pub generics: Generics,
    /// The path to `sqlstreams`.
    pub krate: Path,
    /// The payload type that the group reads.
    pub stream: Path,
    /// The group's name.
    pub name: String,
    /// The patterns of the routing keys that it handles.
    pub bindings: Vec<Spanned<String>>,
    /// The rest; its own bindings are not used.
    pub config: GroupConfig,
    /// Where the key policy is written.
    pub keys_span: Span,
}

/// An enum whose variants are the values of a segment of a route.
#[derive(Clone, Debug)]
pub struct SegmentDeclaration {
    /// The enum's type.
    pub ident: Ident,
    /// The path to `sqlstreams`.
    pub krate: Path,
    /// The variants with their values.
    pub values: Vec<(Ident, String)>,
}

/// A tuple struct of one field that stands for the type inside.
#[derive(Clone, Debug)]
pub struct NewtypeDeclaration {
    /// The struct's type.
    pub ident: Ident,
    /// The path to `sqlstreams`.
    pub krate: Path,
    /// The type inside.
    pub inner: Type,
}

/// A routing key or a pattern that the application wrote by hand.
#[derive(Clone, Debug)]
pub struct LiteralDeclaration {
    /// The path to `sqlstreams`.
    pub krate: Path,
    /// The payload type on whose route it is checked.
    pub stream: Path,
    /// The text.
    pub text: Spanned<String>,
}
