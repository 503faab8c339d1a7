//! One file a kind of declaration. Each emitter has a fallback for a declaration with mistakes, so that the
//! rest of the user's code compiles and one mistake gives one error.

pub(crate) mod group;
pub(crate) mod literal;
pub(crate) mod newtype;
pub(crate) mod segment;
pub(crate) mod stream;
#[cfg(test)]
mod tests;

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::Path;

/// Returns the path that all emitted names hang on.
fn private(krate: &Path) -> TokenStream {
    quote!(#krate::__private)
}

/// Returns the same path with every token at `span`, so that a check that starts with it is reported there.
fn private_at(krate: &Path, span: Span) -> TokenStream {
    let mut tokens = TokenStream::new();
    respan(krate.to_token_stream(), span, &mut tokens);
    quote::quote_spanned!(span=> #tokens::__private)
}

fn respan(tokens: TokenStream, span: Span, to: &mut TokenStream) {
    for mut token in tokens {
        if let TokenTree::Group(group) = &token {
            let mut inner = TokenStream::new();
            respan(group.stream(), span, &mut inner);
            token = TokenTree::Group(Group::new(group.delimiter(), inner));
        }
        token.set_span(span);
        to.extend([token]);
    }
}
