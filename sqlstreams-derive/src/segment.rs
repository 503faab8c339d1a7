use proc_macro2::TokenStream;
use quote::ToTokens as _;
use sqlstreams_codegen::{
    NewtypeDeclaration, SegmentDeclaration, expand_newtype_segment, expand_segment, expand_segment_fallback,
};
use sqlstreams_schema::check_segment;
use syn::ext::IdentExt;
use syn::{Data, DataEnum, DataStruct, DeriveInput, Fields, LitStr, Meta, Path, Type, Variant};

use crate::args::{Args, Spec};
use crate::problems::Problems;
use crate::{krate, serde_attr};

const SPEC: Spec = Spec { namespace: "route_segment", keys: &[("crate", "crate = \"my_crate::sqlstreams\"")] };

pub(crate) fn expand(input: &DeriveInput) -> TokenStream {
    let mut problems = Problems::default();
    let args = Args::read(&input.attrs, &SPEC, &mut problems);
    let krate = krate::read(&args, &mut problems);
    check_generics(input, &mut problems);
    let tokens = match &input.data {
        Data::Enum(data) => expand_enum(input, data, krate.clone(), &mut problems),
        Data::Struct(data) => expand_struct(input, data, krate.clone(), &mut problems),
        Data::Union(data) => {
            let message = "a union can't be a segment of a routing key - write an enum without fields";
            problems.at(data.union_token, message);
            None
        }
    };
    match tokens {
        Some(tokens) if problems.is_empty() => tokens,
        _ => {
            let mut tokens = problems.to_compile_errors();
            tokens.extend(expand_segment_fallback(&input.ident, &input.generics, &krate));
            tokens
        }
    }
}

pub(crate) fn check_generics(input: &DeriveInput, problems: &mut Problems) {
    if !input.generics.params.is_empty() {
        let message = "a part of a key is a type without generic parameters - write the type inside directly";
        problems.at(&input.generics, message);
    }
}

/// Returns the type inside a tuple struct of one field.
pub(crate) fn newtype_inner<'a>(
    input: &'a DeriveInput,
    data: &'a DataStruct,
    what: &str,
    problems: &mut Problems,
) -> Option<&'a Type> {
    if let Fields::Unnamed(fields) = &data.fields
        && let (1, Some(field)) = (fields.unnamed.len(), fields.unnamed.first())
    {
        return Some(&field.ty);
    }
    let ident = &input.ident;
    let message = format!("{what} is a struct around one value - write `struct {ident}(String);`");
    match &data.fields {
        Fields::Unit => problems.at(ident, message),
        fields => problems.at(fields, message),
    }
    None
}

fn expand_struct(input: &DeriveInput, data: &DataStruct, krate: Path, problems: &mut Problems) -> Option<TokenStream> {
    let inner = newtype_inner(input, data, "a segment of a routing key", problems)?;
    Some(expand_newtype_segment(&NewtypeDeclaration { ident: input.ident.clone(), krate, inner: inner.clone() }))
}

fn expand_enum(input: &DeriveInput, data: &DataEnum, krate: Path, problems: &mut Problems) -> Option<TokenStream> {
    if data.variants.is_empty() {
        let message = "an enum without variants has no value to stand in a routing key - add variants";
        problems.at(&input.ident, message);
        return None;
    }
    let naming = Naming::of(input);
    let mut values: Vec<(syn::Ident, String)> = Vec::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            let name = &variant.ident;
            let message =
                format!("variant `{name}` has fields, and a segment of a routing key is one text - remove the fields");
            problems.at(&variant.fields, message);
            continue;
        }
        let Some((value, at)) = naming.value(variant, problems) else {
            continue;
        };
        if let Err(problem) = check_segment(&value) {
            let message = format!("\"{value}\": {problem} - add `#[route_segment(\"..\")]` with another value");
            problems.at(&at, message);
        } else if let Some((other, _)) = values.iter().find(|(_, other)| *other == value) {
            problems.at(&at, format!("\"{value}\" is the value of `{other}` already - give each variant its own"));
        }
        values.push((variant.ident.clone(), value));
    }
    Some(expand_segment(&SegmentDeclaration { ident: input.ident.clone(), krate, values }))
}

/// How serde names the variants of an enum.
struct Naming {
    rename_all: Option<String>,
    /// The attribute by which serde writes the enum through another type, so that its names are not visible.
    hidden_by: Option<String>,
}

impl Naming {
    fn of(input: &DeriveInput) -> Naming {
        let rename_all = serde_attr::find(&input.attrs, "serde", &["rename_all"]);
        let hidden_by = serde_attr::find(&input.attrs, "serde", &["into", "remote"]);
        Naming { rename_all: rename_all.and_then(|attr| attr.text()), hidden_by: hidden_by.map(|attr| attr.word) }
    }

    /// Returns the variant's value and the tokens that it comes from.
    fn value(&self, variant: &Variant, problems: &mut Problems) -> Option<(String, TokenStream)> {
        if let Some(text) = override_of(variant, problems)? {
            return Some((text.value(), text.to_token_stream()));
        }
        if let Some(attr) = &self.hidden_by {
            let message = format!(
                "serde writes this enum by `#[serde({attr} = ..)]`, so its values are not visible here - add \
                 `#[route_segment(\"..\")]` to each variant"
            );
            problems.at(&variant.ident, message);
            return None;
        }
        let renamed = serde_attr::find(&variant.attrs, "serde", &["rename"]);
        let name = variant.ident.unraw().to_string();
        let value = match (renamed.and_then(|attr| attr.text()), &self.rename_all) {
            (Some(value), _) => value,
            // Serde reports a rule that it does not know.
            (None, Some(rule)) => serde_attr::rename_variant(&name, rule).unwrap_or(name),
            (None, None) => name,
        };
        Some((value, variant.ident.to_token_stream()))
    }
}

/// Returns the text of `#[route_segment("text")]`, or nothing at all after a mistake.
fn override_of(variant: &Variant, problems: &mut Problems) -> Option<Option<LitStr>> {
    let mut found: Option<LitStr> = None;
    for attr in variant.attrs.iter().filter(|attr| attr.path().is_ident("route_segment")) {
        let text = match &attr.meta {
            Meta::List(list) => list.parse_args::<LitStr>().ok(),
            _ => None,
        };
        match text {
            Some(_) if found.is_some() => {
                problems.at(attr, "`#[route_segment(..)]` is given already - keep one of them");
            }
            Some(text) => found = Some(text),
            None => {
                let value = variant.ident.unraw().to_string().to_lowercase();
                problems.at(
                    &attr.meta,
                    format!(
                        "`#[route_segment(..)]` on a variant takes its value - write `#[route_segment(\"{value}\")]`"
                    ),
                );
                return None;
            }
        }
    }
    Some(found)
}
