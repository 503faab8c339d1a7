use proc_macro2::TokenStream;
use quote::quote;
use syn::{Generics, Ident, Path};

use crate::declaration::SegmentDeclaration;
use crate::expand::private;

/// Emits `impl RouteSegment` for an enum.
pub fn expand_segment(segment: &SegmentDeclaration) -> TokenStream {
    let ident = &segment.ident;
    let private = private(&segment.krate);
    let values = segment.values.iter().map(|(_, value)| value);
    let arms = segment.values.iter().map(|(variant, value)| quote!(Self::#variant => #value));
    quote! {
        #[automatically_derived]
        impl #private::RouteSegment for #ident {
            const VALUES: #private::Option<&'static [&'static str]> =
                #private::Option::Some(&[#(#values),*]);

            fn segment(&self) -> #private::Cow<'_, str> {
                #private::Cow::Borrowed(match self { #(#arms,)* })
            }
        }
    }
}

/// Emits an `impl RouteSegment` for a declaration with mistakes: one that takes any value.
pub fn expand_segment_fallback(ident: &Ident, generics: &Generics, krate: &Path) -> TokenStream {
    let private = private(krate);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::RouteSegment for #ident #type_generics #where_clause {
            const VALUES: #private::Option<&'static [&'static str]> = #private::Option::None;

            fn segment(&self) -> #private::Cow<'_, str> {
                #private::Cow::Borrowed("")
            }
        }
    }
}
