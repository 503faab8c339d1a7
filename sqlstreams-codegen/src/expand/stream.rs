use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Generics, Ident, Path};

use crate::declaration::{FieldDeclaration, RouteDeclaration, RouteSegmentDeclaration, StreamDeclaration};
use crate::expand::{private, private_at};

/// Emits `impl Stream` and the check of the earlier version.
pub fn expand_stream(stream: &StreamDeclaration) -> TokenStream {
    let StreamDeclaration { ident, name, version, .. } = stream;
    let private = private(&stream.krate);
    let route = expand_route(&private, stream.route.as_ref());
    let routing_key = expand_routing_key(&private, stream.route.as_ref());
    let key = match &stream.key {
        Some(field) => {
            let name = field.name();
            quote!(#private::Option::Some(#name))
        }
        None => quote!(#private::Option::None),
    };
    let message_key = expand_message_key(&private, stream.key.as_ref());
    let idempotency_key = stream.idempotency_key.as_ref().map(|field| expand_idempotency_key(&private, field));
    let earlier = expand_earlier(stream);
    quote! {
        #[automatically_derived]
        impl #private::Stream for #ident {
            const NAME: &'static str = #name;
            const VERSION: u32 = #version;
            const ROUTE: #private::Route = #route;
            const KEY: #private::Option<&'static str> = #key;

            fn routing_key(
                &self,
            ) -> #private::Result<#private::Option<#private::String>, #private::SegmentError> {
                #routing_key
            }

            fn message_key(&self) -> #private::Option<#private::String> {
                #message_key
            }

            #idempotency_key
        }
        #earlier
    }
}

/// Emits an `impl Stream` for a declaration with mistakes. Its empty name tells the checks of other
/// declarations that this one is reported already.
pub fn expand_stream_fallback(ident: &Ident, generics: &Generics, krate: &Path) -> TokenStream {
    // The bounds of `Stream` can't be promised for every type parameter.
    if !generics.params.is_empty() {
        return TokenStream::new();
    }
    let private = private(krate);
    quote! {
        #[automatically_derived]
        impl #private::Stream for #ident {
            const NAME: &'static str = "";
            const VERSION: u32 = 1;
            const ROUTE: #private::Route = #private::Route::NONE;
            const KEY: #private::Option<&'static str> = #private::Option::None;

            fn routing_key(
                &self,
            ) -> #private::Result<#private::Option<#private::String>, #private::SegmentError> {
                #private::Result::Ok(#private::Option::None)
            }

            fn message_key(&self) -> #private::Option<#private::String> {
                #private::Option::None
            }
        }
    }
}

fn expand_route(private: &TokenStream, route: Option<&RouteDeclaration>) -> TokenStream {
    let Some(RouteDeclaration { template, segments }) = route else {
        return quote!(#private::Route::NONE);
    };
    let segments = segments.iter().map(|segment| match segment {
        RouteSegmentDeclaration::Literal(text) => quote!(#private::RoutePart::Literal(#text)),
        RouteSegmentDeclaration::Field(field) => {
            let (name, ty) = (field.name(), &field.ty);
            let values = quote_spanned!(ty.span()=> <#ty as #private::RouteSegment>::VALUES);
            quote!(#private::RoutePart::Field { name: #name, values: #values })
        }
    });
    quote! {
        #private::Route { template: #template, segments: &[#(#segments),*] }
    }
}

fn expand_routing_key(private: &TokenStream, route: Option<&RouteDeclaration>) -> TokenStream {
    let Some(route) = route else {
        return quote!(#private::Result::Ok(#private::Option::None));
    };
    let mut literal = String::new();
    let mut steps = Vec::new();
    for (i, segment) in route.segments.iter().enumerate() {
        if i > 0 {
            literal.push('.');
        }
        match segment {
            RouteSegmentDeclaration::Literal(text) => literal.push_str(text),
            RouteSegmentDeclaration::Field(field) => {
                steps.extend(expand_literal(&literal));
                literal.clear();
                steps.push(expand_segment(private, field));
            }
        }
    }
    steps.extend(expand_literal(&literal));
    quote! {
        let mut __sqlstreams_key = #private::String::new();
        #(#steps)*
        #private::Result::Ok(#private::Option::Some(__sqlstreams_key))
    }
}

fn expand_literal(literal: &str) -> Option<TokenStream> {
    (!literal.is_empty()).then(|| quote!(__sqlstreams_key.push_str(#literal);))
}

fn expand_segment(private: &TokenStream, field: &FieldDeclaration) -> TokenStream {
    let FieldDeclaration { ident, ty } = field;
    let name = field.name();
    let segment = quote_spanned!(ty.span()=> <#ty as #private::RouteSegment>::segment(&self.#ident));
    quote! {
        let __sqlstreams_segment = #segment;
        if let #private::Result::Err(__sqlstreams_problem) =
            #private::check_segment(&__sqlstreams_segment)
        {
            return #private::Result::Err(#private::SegmentError::new(
                <Self as #private::Stream>::NAME,
                #name,
                __sqlstreams_problem,
            ));
        }
        __sqlstreams_key.push_str(&__sqlstreams_segment);
    }
}

fn expand_message_key(private: &TokenStream, key: Option<&FieldDeclaration>) -> TokenStream {
    let Some(FieldDeclaration { ident, ty }) = key else {
        return quote!(#private::Option::None);
    };
    let key = quote_spanned!(ty.span()=> <#ty as #private::MessageKey>::message_key(&self.#ident));
    quote!(#private::Option::Some(#key.into_owned()))
}

/// What a stream without one leaves to the trait.
fn expand_idempotency_key(private: &TokenStream, field: &FieldDeclaration) -> TokenStream {
    let name = field.name();
    let key = expand_message_key(private, Some(field));
    quote! {
        const IDEMPOTENCY_KEY: #private::Option<&'static str> = #private::Option::Some(#name);

        fn idempotency_key(&self) -> #private::Option<#private::String> {
            #key
        }
    }
}

fn expand_earlier(stream: &StreamDeclaration) -> Option<TokenStream> {
    let (ident, earlier) = (&stream.ident, stream.from.as_ref()?);
    // The whole path has no span of its own on stable Rust.
    let span = earlier.segments.last()?.ident.span();
    let private = private_at(&stream.krate, span);
    Some(quote_spanned! {span=>
        const _: () = #private::assert_earlier_version(
            <#ident as #private::Stream>::NAME,
            <#ident as #private::Stream>::VERSION,
            <#earlier as #private::Stream>::NAME,
            <#earlier as #private::Stream>::VERSION,
        );
    })
}
