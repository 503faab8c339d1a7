use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Generics, Ident, Path};

use crate::declaration::NewtypeDeclaration;
use crate::expand::private;

/// Emits `impl RouteSegment` for a struct that stands for the type inside.
pub fn expand_newtype_segment(newtype: &NewtypeDeclaration) -> TokenStream {
    let NewtypeDeclaration { ident, inner, .. } = newtype;
    let private = private(&newtype.krate);
    let values = quote_spanned!(inner.span()=> <#inner as #private::RouteSegment>::VALUES);
    let segment = quote_spanned!(inner.span()=> <#inner as #private::RouteSegment>::segment(&self.0));
    quote! {
        #[automatically_derived]
        impl #private::RouteSegment for #ident {
            const VALUES: #private::Option<&'static [&'static str]> = #values;

            fn segment(&self) -> #private::Cow<'_, str> {
                #segment
            }
        }
    }
}

/// Emits `impl MessageKey` for a struct that stands for the type inside.
pub fn expand_message_key(newtype: &NewtypeDeclaration) -> TokenStream {
    let NewtypeDeclaration { ident, inner, .. } = newtype;
    let private = private(&newtype.krate);
    let key = quote_spanned!(inner.span()=> <#inner as #private::MessageKey>::message_key(&self.0));
    quote! {
        #[automatically_derived]
        impl #private::MessageKey for #ident {
            fn message_key(&self) -> #private::Cow<'_, str> {
                #key
            }
        }
    }
}

/// Emits an `impl MessageKey` for a declaration with mistakes.
pub fn expand_message_key_fallback(ident: &Ident, generics: &Generics, krate: &Path) -> TokenStream {
    let private = private(krate);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::MessageKey for #ident #type_generics #where_clause {
            fn message_key(&self) -> #private::Cow<'_, str> {
                #private::Cow::Borrowed("")
            }
        }
    }
}
