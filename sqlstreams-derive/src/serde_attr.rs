//! What serde's and schemars' attributes say, as far as it matters here. Serde itself reports their mistakes.

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, LitStr, Path, Token, parenthesized};

use crate::args::split;

/// One `word`, `word = ..` or `word(..)` of an attribute.
pub(crate) struct SerdeAttr {
    pub(crate) path: Path,
    pub(crate) word: String,
    rest: TokenStream,
}

impl SerdeAttr {
    /// The text of `word = "text"`, or of `word(serialize = "text")`.
    pub(crate) fn text(&self) -> Option<String> {
        let value = |input: ParseStream<'_>| -> syn::Result<LitStr> {
            input.parse::<Token![=]>()?;
            input.parse()
        };
        let direct = syn::parse::Parser::parse2(value, self.rest.clone()).ok();
        direct.or_else(|| self.serialize_text()).map(|text| text.value())
    }

    fn serialize_text(&self) -> Option<LitStr> {
        let inside = |input: ParseStream<'_>| -> syn::Result<TokenStream> {
            let content;
            parenthesized!(content in input);
            content.parse()
        };
        let tokens = syn::parse::Parser::parse2(inside, self.rest.clone()).ok()?;
        let attrs = split(tokens).into_iter().filter_map(|chunk| syn::parse2::<SerdeAttr>(chunk).ok());
        let serialize = attrs.into_iter().find(|attr| attr.word == "serialize")?;
        syn::parse2::<Assigned>(serialize.rest).ok().map(|assigned| assigned.0)
    }
}

struct Assigned(LitStr);

impl Parse for Assigned {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.parse::<Token![=]>()?;
        Ok(Assigned(input.parse()?))
    }
}

impl Parse for SerdeAttr {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let path = input.call(Path::parse_mod_style)?;
        let word = path.get_ident().map(ToString::to_string).unwrap_or_default();
        Ok(SerdeAttr { path, word, rest: input.parse()? })
    }
}

/// The attributes of `namespace`, which is `serde` or `schemars`.
pub(crate) fn read(attrs: &[Attribute], namespace: &str) -> Vec<SerdeAttr> {
    let lists = attrs.iter().filter(|attr| attr.path().is_ident(namespace));
    let chunks = lists.filter_map(|attr| attr.meta.require_list().ok()).flat_map(|list| split(list.tokens.clone()));
    chunks.filter_map(|chunk| syn::parse2(chunk).ok()).collect()
}

pub(crate) fn find(attrs: &[Attribute], namespace: &str, words: &[&str]) -> Option<SerdeAttr> {
    let mut attrs = read(attrs, namespace).into_iter();
    attrs.find(|attr| words.contains(&attr.word.as_str()))
}

/// Writes a variant's name as serde's `rename_all` does; `None` for a rule that serde does not have.
pub(crate) fn rename_variant(variant: &str, rule: &str) -> Option<String> {
    Some(match rule {
        "PascalCase" => variant.to_owned(),
        "lowercase" => variant.to_ascii_lowercase(),
        "UPPERCASE" => variant.to_ascii_uppercase(),
        "camelCase" => camel(variant),
        "snake_case" => snake(variant),
        "SCREAMING_SNAKE_CASE" => snake(variant).to_ascii_uppercase(),
        "kebab-case" => snake(variant).replace('_', "-"),
        "SCREAMING-KEBAB-CASE" => snake(variant).to_ascii_uppercase().replace('_', "-"),
        _ => return None,
    })
}

fn camel(variant: &str) -> String {
    let mut characters = variant.chars();
    let first = characters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(characters).collect()
}

fn snake(variant: &str) -> String {
    let mut name = String::new();
    for character in variant.chars() {
        if character.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(character.to_ascii_lowercase());
    }
    name
}
