use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use sqlstreams_schema::{DeliveryLog, KeyPolicy, RetryPolicy, Start};
use std::time::Duration;
use syn::{Generics, Ident, Path};

use crate::declaration::GroupDeclaration;
use crate::expand::{private, private_at};

/// Emits `impl Group` and the checks of its bindings and its key policy on the stream.
pub fn expand_group(group: &GroupDeclaration) -> TokenStream {
    let GroupDeclaration { ident, generics, stream, name, .. } = group;
    let private = private(&group.krate);
    let config = expand_config(&private, group);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let bindings = expand_binding_checks(group);
    let keys = expand_key_check(group);
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::Group for #ident #type_generics #where_clause {
            type Stream = #stream;
            const NAME: &'static str = #name;
            const CONFIG: #private::GroupConfig = #config;
        }
        #bindings
        #keys
    }
}

/// Emits an `impl Group` for a declaration with mistakes.
pub fn expand_group_fallback(ident: &Ident, generics: &Generics, krate: &Path, stream: &Path) -> TokenStream {
    let private = private(krate);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::Group for #ident #type_generics #where_clause {
            type Stream = #stream;
            const NAME: &'static str = "";
            const CONFIG: #private::GroupConfig = #private::GroupConfig::DEFAULT;
        }
    }
}

fn expand_config(private: &TokenStream, group: &GroupDeclaration) -> TokenStream {
    let bindings = group.bindings.iter().map(|binding| &binding.value);
    let keys = match group.config.keys {
        KeyPolicy::Parallel => quote!(Parallel),
        KeyPolicy::Exclusive => quote!(Exclusive),
        KeyPolicy::Ordered => quote!(Ordered),
    };
    let retry = expand_retry(private, &group.config.retry);
    let timeout = expand_duration(group.config.timeout);
    let start = match group.config.start {
        Start::Beginning => quote!(Beginning),
        Start::Head => quote!(Head),
        Start::Id(id) => quote!(Id(#id)),
        Start::Time(time) => quote!(Time(#time)),
    };
    let delivery_log = match group.config.delivery_log {
        DeliveryLog::Off => quote!(Off),
        DeliveryLog::Failures => quote!(Failures),
        DeliveryLog::All => quote!(All),
    };
    quote! {
        #private::GroupConfig {
            bindings: &[#(#bindings),*],
            keys: #private::KeyPolicy::#keys,
            retry: #retry,
            timeout: #timeout,
            start: #private::Start::#start,
            delivery_log: #private::DeliveryLog::#delivery_log,
        }
    }
}

fn expand_retry(private: &TokenStream, retry: &RetryPolicy) -> TokenStream {
    let RetryPolicy { retries, factor, jitter_percent, .. } = retry;
    let first_delay = expand_duration(retry.first_delay);
    let max_delay = expand_duration(retry.max_delay);
    quote! {
        #private::RetryPolicy {
            retries: #retries,
            first_delay: #first_delay,
            max_delay: #max_delay,
            factor: #factor,
            jitter_percent: #jitter_percent,
        }
    }
}

fn expand_duration(duration: Duration) -> TokenStream {
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanoseconds))
}

fn expand_binding_checks(group: &GroupDeclaration) -> TokenStream {
    let patterns: Vec<&String> = group.bindings.iter().map(|binding| &binding.value).collect();
    let checks = group.bindings.iter().enumerate().map(|(index, binding)| {
        expand_check(group, binding.span, |private, stream| {
            quote_spanned! {binding.span=>
                #private::assert_binding(
                    <#stream as #private::Stream>::NAME,
                    &<#stream as #private::Stream>::ROUTE,
                    &[#(#patterns),*],
                    #index,
                )
            }
        })
    });
    quote!(#(#checks)*)
}

fn expand_key_check(group: &GroupDeclaration) -> Option<TokenStream> {
    let word = match group.config.keys {
        KeyPolicy::Parallel => return None,
        KeyPolicy::Exclusive => quote!(Exclusive),
        KeyPolicy::Ordered => quote!(Ordered),
    };
    let span = group.keys_span;
    Some(expand_check(group, span, |private, stream| {
        quote_spanned! {span=>
            #private::assert_key_policy(
                <#stream as #private::Stream>::NAME,
                <#stream as #private::Stream>::KEY,
                #private::KeyPolicy::#word,
            )
        }
    }))
}

/// Emits a check that is reported at `span`.
///
/// It names the stream through the group, in a function that asks for a group only, so that a path that
/// leads nowhere or to no payload is reported once. A group with generic parameters has no one type to ask.
fn expand_check(
    group: &GroupDeclaration,
    span: Span,
    call: impl FnOnce(&TokenStream, &TokenStream) -> TokenStream,
) -> TokenStream {
    let (ident, stream) = (&group.ident, &group.stream);
    let private = private_at(&group.krate, span);
    if !group.generics.params.is_empty() {
        let call = call(&private, &quote!(#stream));
        return quote_spanned!(span=> const _: () = #call;);
    }
    let generic = quote_spanned!(span=> <__SqlstreamsGroup as #private::Group>::Stream);
    let call = call(&private, &generic);
    quote_spanned! {span=>
        const _: () = {
            #[track_caller]
            const fn __sqlstreams_check<__SqlstreamsGroup: #private::Group>() {
                #call
            }
            __sqlstreams_check::<#ident>()
        };
    }
}
