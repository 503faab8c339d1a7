//! Reads `#[namespace(key = value, ..)]`, however many there are, and goes on after every mistake.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Ident, Meta, Token};

use crate::hint;
use crate::problems::Problems;

/// The attributes of one macro, each with an example of its use.
pub(crate) struct Spec {
    pub(crate) namespace: &'static str,
    pub(crate) keys: &'static [(&'static str, &'static str)],
}

impl Spec {
    pub(crate) fn example(&self, key: &str) -> &'static str {
        let known = self.keys.iter().find(|(name, _)| *name == key);
        known.map_or("", |(_, example)| example)
    }

    fn first_example(&self) -> &'static str {
        self.keys.first().map_or("", |(_, example)| example)
    }
}

/// One `key = value` as typed.
pub(crate) struct Arg {
    pub(crate) key: Ident,
    pub(crate) value: TokenStream,
}

impl Arg {
    pub(crate) fn name(&self) -> String {
        self.key.unraw().to_string()
    }

    /// The attribute as typed, for messages.
    pub(crate) fn quoted(&self) -> String {
        format!("`{} = {}`", self.name(), typed(&self.value))
    }
}

/// Tokens as a user would type them; their own printer puts blanks around signs.
pub(crate) fn typed(tokens: &TokenStream) -> String {
    let text = tokens.to_string().replace(" :: ", "::");
    let text = text.replace(" , ", ", ").replace(" : ", ": ");
    text.strip_prefix("- ").map_or(text.clone(), |number| format!("-{number}"))
}

pub(crate) struct Args {
    pub(crate) spec: &'static Spec,
    args: Vec<Arg>,
    is_complete: bool,
}

impl Args {
    pub(crate) fn read(attrs: &[Attribute], spec: &'static Spec, problems: &mut Problems) -> Args {
        let mut args = Args { spec, args: Vec::new(), is_complete: true };
        for attr in attrs.iter().filter(|attr| attr.path().is_ident(spec.namespace)) {
            match &attr.meta {
                Meta::List(list) => {
                    for chunk in split(list.tokens.clone()) {
                        args.read_chunk(chunk, problems);
                    }
                }
                meta => {
                    args.is_complete = false;
                    let (namespace, example) = (spec.namespace, spec.first_example());
                    let typed = typed(&meta.to_token_stream());
                    let message = format!("`#[{typed}]` declares nothing - write `#[{namespace}({example})]`");
                    problems.at(meta, message);
                }
            }
        }
        args
    }

    fn read_chunk(&mut self, chunk: TokenStream, problems: &mut Problems) {
        match syn::parse2::<Arg>(chunk.clone()) {
            Ok(arg) => self.add(arg, problems),
            Err(_) => {
                self.is_complete = false;
                let (spec, typed) = (self.spec, typed(&chunk));
                let word = typed.split([' ', '(', '=']).next().unwrap_or_default();
                let example = match spec.example(word) {
                    "" => spec.first_example(),
                    example => example,
                };
                let message = format!("`{typed}` is not an attribute with a value - write `{example}`");
                problems.at(chunk, message);
            }
        }
    }

    fn add(&mut self, arg: Arg, problems: &mut Problems) {
        let name = arg.name();
        let spec = self.spec;
        if !spec.keys.iter().any(|(known, _)| *known == name) {
            self.is_complete = false;
            let known: Vec<String> = spec.keys.iter().map(|(key, _)| (*key).to_owned()).collect();
            let hint = hint::known(&name, &known, "attributes");
            let namespace = spec.namespace;
            problems.at(&arg.key, format!("`#[{namespace}(..)]` has no attribute `{name}` - {hint}"));
        } else if self.args.iter().any(|other| other.key == arg.key) {
            let quoted = arg.quoted();
            problems.at(&arg.key, format!("{quoted}: `{name}` is given already - keep one of them"));
        } else {
            self.args.push(arg);
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arg> {
        self.args.iter().find(|arg| arg.name() == key)
    }

    /// Whether all that was typed was understood, so that what is missing was not typed.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl Parse for Arg {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key = input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
        let value: TokenStream = input.parse()?;
        if value.is_empty() {
            return Err(input.error("no value"));
        }
        Ok(Arg { key, value })
    }
}

/// Splits tokens at their commas; those in brackets are within one token.
pub(crate) fn split(tokens: TokenStream) -> Vec<TokenStream> {
    let mut chunks = vec![TokenStream::new()];
    for token in tokens {
        match (&token, chunks.last_mut()) {
            (TokenTree::Punct(punct), _) if punct.as_char() == ',' => chunks.push(TokenStream::new()),
            (_, Some(chunk)) => chunk.extend([token]),
            (_, None) => {}
        }
    }
    chunks.retain(|chunk| !chunk.is_empty());
    chunks
}
