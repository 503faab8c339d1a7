use proc_macro2::TokenStream;
use quote::ToTokens as _;
use sqlstreams_codegen::{NewtypeDeclaration, expand_message_key, expand_message_key_fallback};
use syn::{Data, DeriveInput};

use crate::args::{Args, Spec};
use crate::krate;
use crate::problems::Problems;
use crate::segment::{check_generics, newtype_inner};

const SPEC: Spec = Spec { namespace: "message_key", keys: &[("crate", "crate = \"my_crate::sqlstreams\"")] };

pub(crate) fn expand(input: &DeriveInput) -> TokenStream {
    let mut problems = Problems::default();
    let args = Args::read(&input.attrs, &SPEC, &mut problems);
    let krate = krate::read(&args, &mut problems);
    check_generics(input, &mut problems);
    let (ident, what) = (&input.ident, "a message key");
    let token = match &input.data {
        Data::Struct(data) => {
            let inner = newtype_inner(input, data, what, &mut problems);
            if let (Some(inner), true) = (inner, problems.is_empty()) {
                return expand_message_key(&NewtypeDeclaration { ident: ident.clone(), krate, inner: inner.clone() });
            }
            None
        }
        Data::Enum(data) => Some(data.enum_token.to_token_stream()),
        Data::Union(data) => Some(data.union_token.to_token_stream()),
    };
    if let Some(token) = token {
        problems.at(token, format!("{what} is a struct around one value - write `struct {ident}(String);`"));
    }
    let mut tokens = problems.to_compile_errors();
    tokens.extend(expand_message_key_fallback(ident, &input.generics, &krate));
    tokens
}
