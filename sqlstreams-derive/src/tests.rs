//! What the macros do with any input at all. What they say is tested where the compiler shows it.

use proc_macro2::TokenStream;
use proptest::prelude::*;
use quote::{ToTokens, quote};
use syn::{DeriveInput, File, Item};

use crate::{group, key, literal, segment, stream};

type Expand = fn(&DeriveInput) -> TokenStream;

const DERIVES: [(Expand, &str); 4] = [
    (stream::expand, "Stream"),
    (group::expand, "Group"),
    (segment::expand, "RouteSegment"),
    (key::expand, "MessageKey"),
];

/// The traits that the output implements, and whether it holds an error.
fn outcome(tokens: &TokenStream) -> (Vec<String>, bool) {
    let file: File = syn::parse2(tokens.clone()).expect("the output is a list of items");
    let traits = file.items.iter().filter_map(|item| match item {
        Item::Impl(item) => item.trait_.as_ref()?.0.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    });
    (traits.collect(), tokens.to_string().contains("compile_error"))
}

fn parse(text: &str) -> DeriveInput {
    syn::parse_str(text).expect("an item")
}

#[test]
fn a_correct_declaration_becomes_an_implementation() {
    for (expand, name, text) in [
        (DERIVES[0].0, "Stream", "#[stream(name = \"orders\", key = \"id\")] struct S { id: u64 }"),
        (DERIVES[1].0, "Group", "#[group(name = \"g\", stream = S)] struct G;"),
        (DERIVES[2].0, "RouteSegment", "enum E { A, B }"),
        (DERIVES[3].0, "MessageKey", "struct K(String);"),
    ] {
        let expected = (vec![name.to_owned()], false);
        assert_eq!(outcome(&expand(&parse(text))), expected, "{text}");
    }
}

#[test]
fn a_declaration_with_mistakes_has_its_errors_and_the_same_implementation() {
    for text in [
        "#[stream(name = \"A\")] #[group(stream = S)] struct S { id: u64 }",
        "#[stream(name)] #[group(name, stream = S)] #[route_segment(x)] #[message_key(x)] enum S {}",
        "#[stream(x)] #[group(stream = S, keys = 5)] #[route_segment] #[message_key] struct S;",
        "#[stream(x)] #[group(stream = S)] union S { a: u8 }",
        "#[stream()] #[group(stream = S, crate = 5)] #[message_key(x = 1)] #[route_segment(x = 1)] struct S(A);",
    ] {
        for (expand, name) in DERIVES {
            let (traits, has_error) = outcome(&expand(&parse(text)));
            assert_eq!((traits, has_error), (vec![name.to_owned()], true), "{text}");
        }
    }
}

#[test]
fn the_fallback_keeps_the_generic_parameters() {
    let input = parse("#[group(nam = 5, stream = S)] struct G<'a, T: Send, const N: usize>(&'a [T; N]) where T: Sync;");
    let tokens = group::expand(&input).to_string();
    let expected = quote!(Group for G<'a, T, N> where T: Sync).to_string();
    assert!(tokens.contains(&expected), "{tokens}");
}

#[test]
fn a_mistaken_literal_is_an_expression_all_the_same() {
    for text in ["", "S", "S, 5", "S, \"a\", 7", "S, \"a\", crate = \"5 5\"", "5, \"a\""] {
        let tokens: TokenStream = text.parse().expect("tokens");
        for output in [literal::expand_route(tokens.clone()), literal::expand_bind(tokens)] {
            assert!(output.to_string().contains("compile_error"), "{text}");
            assert!(syn::parse2::<syn::Expr>(output).is_ok(), "{text}");
        }
    }
}

fn attribute() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        8 => prop::sample::select(vec![
            "name", "version", "route", "key", "from", "crate", "stream", "bind", "keys", "retries",
            "retry_delay", "retry_max_delay", "timeout", "start", "naem", "r#type", "self", "\"text\"", "",
        ]),
    ];
    let value = prop::sample::select(vec![
        "",
        "=",
        "= \"\"",
        "= \"orders\"",
        "= \"Orders\"",
        "= \"a.{id}.b\"",
        "= \"{id\"",
        "= \"é.*\"",
        "= 0",
        "= 5",
        "= -5",
        "= 99999999999999999999999",
        "= 1.5",
        "= true",
        "= []",
        "= [\"a\", \"a\", \"**\"]",
        "= [\"a\" 5]",
        "= a::b<C>",
        "= ::a",
        "= \"5m\"",
        "= \"5 minutes\"",
        "= \"ordered\"",
        "= \"head\"",
        "(\"a\")",
        ": \"a\"",
        "= = ,",
        "= {{}}",
        "= #",
        "= 'a'",
        "= r#\"a\"#",
        "= b\"a\"",
        "= \"::x::y\"",
    ]);
    (key, value).prop_map(|(key, value)| format!("{key} {value}"))
}

fn item() -> impl Strategy<Value = String> {
    let generics = prop::sample::select(vec!["", "<T>", "<'a, T: Send, const N: usize>"]);
    let body = prop::sample::select(vec![
        "struct X$;",
        "struct X$(u8);",
        "struct X$(u8, u8);",
        "struct X$ { id: u8 }",
        "enum X$ {}",
        "struct X$ { #[serde(with = \"a\", skip, = 5)] id: Option<u8>, r#type: u8 }",
        "union X$ { id: u8 }",
        "enum X$ { A, #[serde(rename = \"a.b\")] B, #[route_segment] C, #[route_segment(5)] D, E(u8) }",
        "#[serde(rename_all = \"kebab-case\")] enum X$ { Ünï, r#loop, #[serde(rename(serialize = \"x\"))] A }",
        "#[serde(rename_all = 5, into)] enum X$ { A, #[serde(rename)] B }",
    ]);
    (generics, body).prop_map(|(generics, body)| body.replace('$', generics))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_declaration_makes_the_macros_panic(
        namespace in prop::sample::select(vec!["stream", "group", "route_segment", "message_key"]),
        lists in prop::collection::vec(prop::collection::vec(attribute(), 0..4), 0..3),
        item in item(),
    ) {
        let lines = lists.iter().map(|list| format!("#[{namespace}({})] ", list.join(", ")));
        let Ok(input) = syn::parse_str::<DeriveInput>(&format!("{}{item}", lines.collect::<String>())) else {
            return Ok(());
        };
        for (expand, _) in DERIVES {
            outcome(&expand(&input));
        }
    }

    #[test]
    fn no_input_makes_the_literals_panic(input in r#"(S|,|"[a.*é]{0,5}"|crate|=|5|\(\)| ){0,7}"#) {
        if let Ok(tokens) = input.parse::<TokenStream>() {
            let output = literal::expand_route(tokens.clone());
            prop_assert!(syn::parse2::<syn::Expr>(output.to_token_stream()).is_ok());
            literal::expand_bind(tokens);
        }
    }
}
