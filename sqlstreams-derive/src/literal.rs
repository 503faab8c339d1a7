//! `route!` and `bind!`.

use proc_macro2::TokenStream;
use sqlstreams_codegen::{LiteralDeclaration, Spanned, expand_pattern, expand_routing_key};
use sqlstreams_schema::check_pattern;
use syn::parse::{Parse, ParseStream};
use syn::{LitStr, Path, Token};

use crate::krate;
use crate::problems::Problems;

pub(crate) fn expand_route(input: TokenStream) -> TokenStream {
    let mut problems = Problems::default();
    match read(input, "route!(OrderPlaced, \"orders.eu.created\")", &mut problems) {
        Some(literal) if problems.is_empty() => expand_routing_key(&literal),
        _ => fallback(&problems),
    }
}

pub(crate) fn expand_bind(input: TokenStream) -> TokenStream {
    let mut problems = Problems::default();
    let literal = read(input, "bind!(OrderPlaced, \"orders.eu.*\")", &mut problems);
    if let Some(literal) = &literal
        && let Err(problem) = check_pattern(&literal.text.value)
    {
        let (pattern, span) = (&literal.text.value, literal.text.span);
        problems.at_span(span, format!("pattern \"{pattern}\": {problem}"));
    }
    match literal {
        Some(literal) if problems.is_empty() => expand_pattern(&literal),
        _ => fallback(&problems),
    }
}

/// A text in the place of the one with mistakes, so that its use is no further error.
fn fallback(problems: &Problems) -> TokenStream {
    let errors = problems.to_compile_errors();
    quote::quote!({ #errors "" })
}

fn read(input: TokenStream, example: &str, problems: &mut Problems) -> Option<LiteralDeclaration> {
    let input = match syn::parse2::<Input>(input) {
        Ok(input) => input,
        Err(error) => {
            let message = format!("a payload's type and a text are expected - write `{example}`");
            problems.at_span(error.span(), message);
            return None;
        }
    };
    let krate = match &input.krate {
        Some(text) => krate::parse(text, problems)?,
        None => krate::default(),
    };
    Some(LiteralDeclaration {
        krate,
        stream: input.stream,
        text: Spanned { value: input.text.value(), span: input.text.span() },
    })
}

struct Input {
    stream: Path,
    text: LitStr,
    krate: Option<LitStr>,
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let stream = input.parse()?;
        input.parse::<Token![,]>()?;
        let text = input.parse()?;
        let mut krate = None;
        if input.peek(Token![,]) && input.peek2(Token![crate]) {
            input.parse::<Token![,]>()?;
            input.parse::<Token![crate]>()?;
            input.parse::<Token![=]>()?;
            krate = Some(input.parse()?);
        }
        input.parse::<Option<Token![,]>>()?;
        if input.is_empty() { Ok(Input { stream, text, krate }) } else { Err(input.error("nothing more is expected")) }
    }
}
