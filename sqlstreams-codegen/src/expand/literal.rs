use proc_macro2::{Ident, TokenStream};
use quote::quote_spanned;

use crate::declaration::LiteralDeclaration;
use crate::expand::private_at;

/// Emits a routing key as text, with its check on the stream's route.
pub fn expand_routing_key(literal: &LiteralDeclaration) -> TokenStream {
    expand_checked(literal, "assert_routing_key")
}

/// Emits a pattern as text, with its check on the stream's route.
pub fn expand_pattern(literal: &LiteralDeclaration) -> TokenStream {
    expand_checked(literal, "assert_pattern")
}

fn expand_checked(literal: &LiteralDeclaration, check: &str) -> TokenStream {
    let LiteralDeclaration { stream, text, .. } = literal;
    let check = Ident::new(check, literal.text.span);
    let private = private_at(&literal.krate, text.span);
    let value = &text.value;
    quote_spanned! {text.span=>
        {
            const _: () = #private::#check(
                <#stream as #private::Stream>::NAME,
                &<#stream as #private::Stream>::ROUTE,
                #value,
            );
            #value
        }
    }
}
