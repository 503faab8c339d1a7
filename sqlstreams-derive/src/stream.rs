use proc_macro2::TokenStream;
use quote::ToTokens as _;
use sqlstreams_codegen::{StreamDeclaration, expand_stream, expand_stream_fallback};
use sqlstreams_schema::{NameProblem, check_stream_name};
use syn::{Data, DeriveInput, Fields, FieldsNamed, Ident, LitStr, Path};

use crate::args::{Args, Spec};
use crate::problems::Problems;
use crate::stream_fields::Payload;
use crate::{hint, krate};

const SPEC: Spec = Spec {
    namespace: "stream",
    keys: &[
        ("name", "name = \"orders.placed\""),
        ("version", "version = 2"),
        ("route", "route = \"orders.{region}\""),
        ("key", "key = \"order_id\""),
        ("idempotency_key", "idempotency_key = \"request_id\""),
        ("from", "from = v1::OrderPlaced"),
        ("crate", "crate = \"my_crate::sqlstreams\""),
    ],
};

pub(crate) fn expand(input: &DeriveInput) -> TokenStream {
    let mut problems = Problems::default();
    let args = Args::read(&input.attrs, &SPEC, &mut problems);
    let krate = krate::read(&args, &mut problems);
    let declaration = declare(input, &args, krate.clone(), &mut problems);
    match declaration {
        Some(declaration) if problems.is_empty() => expand_stream(&declaration),
        _ => {
            let mut tokens = problems.to_compile_errors();
            tokens.extend(expand_stream_fallback(&input.ident, &input.generics, &krate));
            tokens
        }
    }
}

fn declare(input: &DeriveInput, args: &Args, krate: Path, problems: &mut Problems) -> Option<StreamDeclaration> {
    let name = read_name(&input.ident, args, check_stream_name, problems);
    let version = read_version(args, problems);
    let from = read_from(args, problems);
    check_generics(input, problems);
    let fields = named_fields(input, problems)?;
    let payload = Payload { ident: &input.ident, fields };
    payload.check_serde(problems);
    Some(StreamDeclaration {
        ident: input.ident.clone(),
        krate,
        name: name?.value(),
        version,
        route: payload.route(args, problems),
        key: payload.key(args, "key", problems),
        idempotency_key: payload.key(args, "idempotency_key", problems),
        from,
    })
}

/// Reads the name of a stream or a group.
pub(crate) fn read_name(
    ident: &Ident,
    args: &Args,
    check: fn(&str) -> Result<(), NameProblem>,
    problems: &mut Problems,
) -> Option<LitStr> {
    let namespace = args.spec.namespace;
    let Some(arg) = args.get("name") else {
        if args.is_complete() {
            let name = hint::kebab(&ident.to_string());
            let message = format!("this {namespace} has no name - add `#[{namespace}(name = \"{name}\")]`");
            problems.at(ident, message);
        }
        return None;
    };
    let name = args.text("name", problems)?;
    if let Err(problem) = check(&name.value()) {
        let mut message = format!("{}: {problem}", arg.quoted());
        let tidy = hint::tidy(&name.value());
        if check(&tidy).is_ok() {
            message.push_str(&format!(" - write `name = \"{tidy}\"`"));
        }
        problems.at(&name, message);
    }
    Some(name)
}

fn read_version(args: &Args, problems: &mut Problems) -> u32 {
    let Some(version) = args.number("version", problems) else {
        return 1;
    };
    if version.value == 0 {
        problems.at_span(version.span, "`version = 0`: versions count from 1 - write `version = 1`");
    }
    version.value
}

fn read_from(args: &Args, problems: &mut Problems) -> Option<Path> {
    let path = args.path("from", problems)?;
    if let (Some(arg), None, true) = (args.get("from"), args.get("version"), args.is_complete()) {
        let quoted = arg.quoted();
        let message = format!("{quoted}: a payload that follows another has a higher version - add `version = 2`");
        problems.at(&path, message);
    }
    Some(path)
}

fn check_generics(input: &DeriveInput, problems: &mut Problems) {
    if !input.generics.params.is_empty() {
        let ident = &input.ident;
        let message = format!(
            "a stream's payload has no generic parameters, since one shape is stored for it - declare a \
             struct of its own for each type that `{ident}` would be used with"
        );
        problems.at(&input.generics, message);
    }
}

fn named_fields<'a>(input: &'a DeriveInput, problems: &mut Problems) -> Option<&'a FieldsNamed> {
    let ident = &input.ident;
    let (tokens, what, write) = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => return Some(fields),
            fields @ Fields::Unnamed(_) => (fields.to_token_stream(), "a tuple struct", "{ value: .. }`"),
            Fields::Unit => (ident.to_token_stream(), "a unit struct", "{}`"),
        },
        Data::Enum(data) => {
            (data.enum_token.to_token_stream(), "an enum", "{ value: .. }` with an enum as the type of a field")
        }
        Data::Union(data) => (data.union_token.to_token_stream(), "a union", "{ value: .. }`"),
    };
    let message = format!(
        "a stream's payload is a struct with named fields, so that later versions can add some, and \
         `{ident}` is {what} - write `struct {ident} {write}"
    );
    problems.at(tokens, message);
    None
}
