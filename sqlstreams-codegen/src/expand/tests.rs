use std::collections::BTreeSet;
use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use sqlstreams_schema::{GroupConfig, KeyPolicy, Start};
use syn::{File, parse_quote};

use crate::declaration::{
    FieldDeclaration, GroupDeclaration, LiteralDeclaration, NewtypeDeclaration, RouteDeclaration,
    RouteSegmentDeclaration, SegmentDeclaration, Spanned, StreamDeclaration,
};
use crate::expand::{group, literal, newtype, segment, stream};

fn field(ident: &str) -> FieldDeclaration {
    FieldDeclaration { ident: syn::parse_str(ident).expect("an ident"), ty: parse_quote!(FieldType) }
}

fn stream_declaration() -> StreamDeclaration {
    StreamDeclaration {
        ident: parse_quote!(OrderPlaced),
        krate: parse_quote!(::krate),
        name: "orders.placed".to_owned(),
        version: 2,
        route: Some(RouteDeclaration {
            template: "orders.{type}.all".to_owned(),
            segments: vec![
                RouteSegmentDeclaration::Literal("orders".to_owned()),
                RouteSegmentDeclaration::Field(Box::new(field("r#type"))),
                RouteSegmentDeclaration::Literal("all".to_owned()),
            ],
        }),
        key: Some(field("r#type")),
        idempotency_key: Some(field("r#type")),
        from: Some(parse_quote!(v1::OrderPlaced)),
    }
}

fn group_declaration() -> GroupDeclaration {
    GroupDeclaration {
        ident: parse_quote!(EmailReceipts),
        generics: parse_quote!(),
        krate: parse_quote!(::krate),
        stream: parse_quote!(OrderPlaced),
        name: "email-receipts".to_owned(),
        bindings: vec![Spanned { value: "orders.eu.*".to_owned(), span: Span::call_site() }],
        config: GroupConfig {
            keys: KeyPolicy::Ordered,
            timeout: Duration::from_millis(1_500),
            start: Start::Id(7),
            ..GroupConfig::DEFAULT
        },
        keys_span: Span::call_site(),
    }
}

fn everything() -> TokenStream {
    let newtype = NewtypeDeclaration {
        ident: parse_quote!(OrderId),
        krate: parse_quote!(::krate),
        inner: parse_quote!(FieldType),
    };
    let segment = SegmentDeclaration {
        ident: parse_quote!(Region),
        krate: parse_quote!(::krate),
        values: vec![(parse_quote!(Eu), "eu".to_owned())],
    };
    let literal = LiteralDeclaration {
        krate: parse_quote!(::krate),
        stream: parse_quote!(OrderPlaced),
        text: Spanned { value: "orders.eu.x".to_owned(), span: Span::call_site() },
    };
    let key = literal::expand_routing_key(&literal);
    let pattern = literal::expand_pattern(&literal);
    [
        stream::expand_stream(&stream_declaration()),
        group::expand_group(&group_declaration()),
        segment::expand_segment(&segment),
        newtype::expand_newtype_segment(&newtype),
        newtype::expand_message_key(&newtype),
        quote::quote!(const _: &str = #key; const _: &str = #pattern;),
    ]
    .into_iter()
    .collect()
}

/// The two first names of every path that begins with `::`.
fn absolute_paths(tokens: &TokenStream) -> BTreeSet<String> {
    let text = tokens.to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    let continues = |word: &str| {
        let is_keyword = ["impl", "return", "for", "const", "as", "="].contains(&word);
        !is_keyword && word.ends_with(|c: char| c.is_alphanumeric() || "_>".contains(c))
    };
    let starts = (1..words.len()).filter(|at| words[*at] == "::" && !continues(words[at - 1]));
    starts.filter_map(|at| words.get(at..at + 4)).map(|path| path.concat()).collect()
}

#[test]
fn emitted_code_names_nothing_outside_the_private_module() {
    let paths = Vec::from_iter(absolute_paths(&everything()));
    assert_eq!(paths, ["::core::time", "::krate::__private"]);
}

#[test]
fn emitted_code_is_a_list_of_items() {
    let file: File = syn::parse2(everything()).expect("items");
    assert_eq!(file.items.len(), 10);
}

#[test]
fn a_declaration_without_route_and_key_emits_no_calls() {
    let plain = StreamDeclaration { route: None, key: None, idempotency_key: None, from: None, ..stream_declaration() };
    let text = stream::expand_stream(&plain).to_string();
    assert!(!text.contains("RouteSegment") && !text.contains("MessageKey"), "{text}");
    assert!(!text.contains("IDEMPOTENCY_KEY"), "the trait says that there is none: {text}");
    assert!(text.contains("Route :: NONE"), "{text}");
}

#[test]
fn every_part_of_a_group_is_written_out() {
    let text = group::expand_group(&group_declaration()).to_string();
    for part in [
        "Duration :: new (1u64 , 500000000u32)",
        "Start :: Id (7i64)",
        "KeyPolicy :: Ordered",
        "DeliveryLog :: Off",
        "retries : 5u32",
        "assert_binding",
        "assert_key_policy",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
