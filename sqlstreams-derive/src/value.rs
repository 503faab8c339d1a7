//! The kinds of values that attributes take.

use std::time::Duration;

use sqlstreams_codegen::Spanned;
use sqlstreams_schema::parse_duration;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{LitInt, LitStr, Path, Token, bracketed};

use crate::args::{Arg, Args, typed};
use crate::problems::Problems;

impl Args {
    pub(crate) fn text(&self, key: &str, problems: &mut Problems) -> Option<LitStr> {
        let arg = self.get(key)?;
        let text = syn::parse2::<LitStr>(arg.value.clone()).ok();
        if text.is_none() {
            let plain = typed(&arg.value);
            let name = arg.name();
            let write = if plain.contains(['"', '[', '(', '{']) {
                self.spec.example(key).to_owned()
            } else {
                format!("{name} = \"{plain}\"")
            };
            report(arg, "a text in quotation marks", &write, problems);
        }
        text
    }

    /// A whole number that fits, with the place where it stands.
    pub(crate) fn number(&self, key: &str, problems: &mut Problems) -> Option<Spanned<u32>> {
        let arg = self.get(key)?;
        let number = syn::parse2::<LitInt>(arg.value.clone()).ok();
        let value = number.as_ref().and_then(|number| number.base10_parse::<u32>().ok());
        let value = value.filter(|value| *value <= i32::MAX as u32);
        match (value, number) {
            (Some(value), Some(number)) => Some(Spanned { value, span: number.span() }),
            _ => {
                let content = unquoted(arg).filter(|text| text.parse::<u32>().is_ok());
                let write = match content {
                    Some(text) => format!("{} = {text}", arg.name()),
                    None => self.spec.example(key).to_owned(),
                };
                report(arg, "a whole number up to 2147483647", &write, problems);
                None
            }
        }
    }

    pub(crate) fn path(&self, key: &str, problems: &mut Problems) -> Option<Path> {
        let arg = self.get(key)?;
        let path = syn::parse2::<Path>(arg.value.clone()).ok();
        if path.is_none() {
            let content = unquoted(arg).filter(|text| syn::parse_str::<Path>(text).is_ok());
            let write = match content {
                Some(text) => format!("{} = {text}", arg.name()),
                None => self.spec.example(key).to_owned(),
            };
            report(arg, "the path of a type", &write, problems);
        }
        path
    }

    pub(crate) fn texts(&self, key: &str, problems: &mut Problems) -> Option<Vec<LitStr>> {
        let arg = self.get(key)?;
        let one = syn::parse2::<LitStr>(arg.value.clone()).map(|text| vec![text]);
        let texts = one.or_else(|_| parse_list.parse2(arg.value.clone())).ok();
        if texts.is_none() {
            let example = self.spec.example(key);
            report(arg, "a text or a list of texts in brackets", example, problems);
        }
        texts
    }

    pub(crate) fn duration(&self, key: &str, problems: &mut Problems) -> Option<Duration> {
        let arg = self.get(key)?;
        let plain = unquoted(arg);
        let problem = match plain.as_deref().map(parse_duration) {
            Some(Ok(duration)) => return Some(duration),
            Some(Err(problem)) => format!("{}: {problem}", arg.quoted()),
            None => format!("{}: `{key}` takes a duration in quotation marks", arg.quoted()),
        };
        let plain = plain.unwrap_or_else(|| typed(&arg.value));
        let meant = [plain.clone(), format!("{plain}s")].into_iter().find(|text| parse_duration(text).is_ok());
        let write = match meant {
            Some(text) => format!("{key} = \"{text}\""),
            None => self.spec.example(key).to_owned(),
        };
        problems.at(&arg.value, format!("{problem} - write `{write}`"));
        None
    }
}

fn parse_list(input: syn::parse::ParseStream<'_>) -> syn::Result<Vec<LitStr>> {
    let list;
    bracketed!(list in input);
    let texts = Punctuated::<LitStr, Token![,]>::parse_terminated(&list)?;
    Ok(texts.into_iter().collect())
}

fn unquoted(arg: &Arg) -> Option<String> {
    let text = syn::parse2::<LitStr>(arg.value.clone()).ok()?;
    Some(text.value())
}

fn report(arg: &Arg, expected: &str, write: &str, problems: &mut Problems) {
    let (quoted, name) = (arg.quoted(), arg.name());
    problems.at(&arg.value, format!("{quoted}: `{name}` takes {expected} - write `{write}`"));
}
