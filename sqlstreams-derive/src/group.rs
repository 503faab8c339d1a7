use proc_macro2::{Span, TokenStream};
use quote::ToTokens as _;
use sqlstreams_codegen::{GroupDeclaration, Spanned, expand_group, expand_group_fallback};
use sqlstreams_schema::{
    ConfigProblem, DeliveryLog, GroupConfig, KeyPolicy, RetryPolicy, Start, check_group_name, check_pattern,
};
use syn::{Data, DeriveInput, LitStr, Path};

use crate::args::{Arg, Args, Spec};
use crate::problems::Problems;
use crate::stream::read_name;
use crate::{hint, krate};

const SPEC: Spec = Spec {
    namespace: "group",
    keys: &[
        ("name", "name = \"email-receipts\""),
        ("stream", "stream = OrderPlaced"),
        ("bind", "bind = [\"orders.eu.*\", \"orders.us.*\"]"),
        ("keys", "keys = \"ordered\""),
        ("retries", "retries = 5"),
        ("retry_delay", "retry_delay = \"1s\""),
        ("retry_max_delay", "retry_max_delay = \"5m\""),
        ("timeout", "timeout = \"30s\""),
        ("start", "start = \"head\""),
        ("delivery_log", "delivery_log = \"failures\""),
        ("crate", "crate = \"my_crate::sqlstreams\""),
    ],
};

pub(crate) fn expand(input: &DeriveInput) -> TokenStream {
    let mut problems = Problems::default();
    let args = Args::read(&input.attrs, &SPEC, &mut problems);
    let krate = krate::read(&args, &mut problems);
    check_kind(input, &mut problems);
    let stream = read_stream(input, &args, &mut problems);
    let declaration = declare(input, &args, krate.clone(), stream.clone(), &mut problems);
    match (declaration, stream) {
        (Some(declaration), _) if problems.is_empty() => expand_group(&declaration),
        (_, stream) => {
            let mut tokens = problems.to_compile_errors();
            let fallback = stream.map(|stream| expand_group_fallback(&input.ident, &input.generics, &krate, &stream));
            tokens.extend(fallback);
            tokens
        }
    }
}

fn check_kind(input: &DeriveInput, problems: &mut Problems) {
    let (tokens, what) = match &input.data {
        Data::Struct(_) => return,
        Data::Enum(data) => (data.enum_token.to_token_stream(), "an enum"),
        Data::Union(data) => (data.union_token.to_token_stream(), "a union"),
    };
    let ident = &input.ident;
    problems.at(tokens, format!("a group is a struct, and `{ident}` is {what} - write `struct {ident};`"));
}

fn read_stream(input: &DeriveInput, args: &Args, problems: &mut Problems) -> Option<Path> {
    if args.get("stream").is_none() && args.is_complete() {
        let message = "this group has no stream - add `#[group(stream = OrderPlaced)]` with the payload's type";
        problems.at(&input.ident, message);
    }
    let path = args.path("stream", problems)?;
    if let Some(parameter) = input.generics.type_params().find(|p| path.is_ident(&p.ident)) {
        let name = &parameter.ident;
        problems.at(
            &path,
            format!(
                "`stream = {name}`: a group reads one stream, and `{name}` is a type parameter - name a payload's type"
            ),
        );
        return None;
    }
    Some(path)
}

fn declare(
    input: &DeriveInput,
    args: &Args,
    krate: Path,
    stream: Option<Path>,
    problems: &mut Problems,
) -> Option<GroupDeclaration> {
    let name = read_name(&input.ident, args, check_group_name, problems);
    let bindings = read_bindings(args, problems);
    let keys = read_word(args, "keys", &KeyPolicy::ALL.map(|policy| (policy.as_str(), policy)), problems);
    let start = [("beginning", Start::Beginning), ("head", Start::Head)];
    let start = read_word(args, "start", &start, problems);
    let modes = DeliveryLog::ALL.map(|mode| (mode.as_str(), mode));
    let delivery_log = read_word(args, "delivery_log", &modes, problems);
    let defaults = GroupConfig::DEFAULT;
    let config = GroupConfig {
        bindings: &[],
        keys: keys.as_ref().map_or(defaults.keys, |keys| keys.value),
        retry: read_retry(args, problems),
        timeout: args.duration("timeout", problems).unwrap_or(defaults.timeout),
        start: start.map_or(defaults.start, |start| start.value),
        delivery_log: delivery_log.map_or(defaults.delivery_log, |mode| mode.value),
    };
    check_config(&config, args, problems);
    Some(GroupDeclaration {
        ident: input.ident.clone(),
        generics: input.generics.clone(),
        krate,
        stream: stream?,
        name: name?.value(),
        bindings,
        config,
        keys_span: keys.map_or_else(Span::call_site, |keys| keys.span),
    })
}

fn read_bindings(args: &Args, problems: &mut Problems) -> Vec<Spanned<String>> {
    let texts = args.texts("bind", problems);
    if let (Some(arg), Some([])) = (args.get("bind"), texts.as_deref()) {
        let quoted = arg.quoted();
        let message = format!("{quoted} binds nothing - leave it out for the whole stream, or write a pattern");
        problems.at(&arg.value, message);
    }
    let mut bindings: Vec<Spanned<String>> = Vec::new();
    for text in texts.unwrap_or_default() {
        check_binding(&text, &bindings, problems);
        bindings.push(Spanned { value: text.value(), span: text.span() });
    }
    bindings
}

fn check_binding(text: &LitStr, earlier: &[Spanned<String>], problems: &mut Problems) {
    let pattern = text.value();
    if let Err(problem) = check_pattern(&pattern) {
        problems.at(text, format!("binding \"{pattern}\": {problem}"));
    } else if earlier.iter().any(|binding| binding.value == pattern) {
        problems.at(text, format!("binding \"{pattern}\" is given already - keep one of them"));
    }
}

fn read_word<T: Copy>(args: &Args, key: &str, words: &[(&str, T)], problems: &mut Problems) -> Option<Spanned<T>> {
    let arg = args.get(key)?;
    let text = args.text(key, problems)?;
    let typed = text.value();
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == typed) {
        return Some(Spanned { value: *value, span: text.span() });
    }
    let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    let hint = hint::known(&format!("\"{typed}\""), &known, "values");
    problems.at(&text, format!("{}: `{key}` has no such value - {hint}", arg.quoted()));
    None
}

fn read_retry(args: &Args, problems: &mut Problems) -> RetryPolicy {
    let defaults = RetryPolicy::DEFAULT;
    let first_delay = args.duration("retry_delay", problems);
    let max_delay = args.duration("retry_max_delay", problems);
    let first = first_delay.unwrap_or(defaults.first_delay);
    RetryPolicy {
        retries: args.number("retries", problems).map_or(defaults.retries, |retries| retries.value),
        first_delay: first,
        // A long first delay alone raises the default cap with it.
        max_delay: max_delay.unwrap_or(defaults.max_delay.max(first)),
        ..defaults
    }
}

fn check_config(config: &GroupConfig, args: &Args, problems: &mut Problems) {
    let (key, write) = match config.check() {
        Ok(()) => return,
        Err(ConfigProblem::NoTimeout) => ("timeout", "write `timeout = \"30s\"`"),
        Err(_) => ("retry_max_delay", "raise it, or lower `retry_delay`"),
    };
    if let (Some(arg), Err(problem)) = (args.get(key), config.check()) {
        let quoted: String = Arg::quoted(arg);
        problems.at(&arg.value, format!("{quoted}: {problem} - {write}"));
    }
}
