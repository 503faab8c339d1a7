//! What a stream's attributes say about the fields of its payload.

use sqlstreams_codegen::{FieldDeclaration, RouteDeclaration, RouteSegmentDeclaration};
use sqlstreams_schema::{TemplatePart, TemplateProblem, parse_template};
use syn::ext::IdentExt;
use syn::{Field, FieldsNamed, Ident, LitStr, Type};

use crate::args::{Arg, Args};
use crate::problems::Problems;
use crate::{hint, serde_attr};

pub(crate) struct Payload<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) fields: &'a FieldsNamed,
}

impl Payload<'_> {
    /// Serde's `with` and its kin write a field in a way that its type does not tell.
    pub(crate) fn check_serde(&self, problems: &mut Problems) {
        for field in &self.fields.named {
            if serde_attr::find(&field.attrs, "schemars", &["with", "schema_with"]).is_some() {
                continue;
            }
            let hidden = ["with", "serialize_with", "deserialize_with"];
            if let Some(attr) = serde_attr::find(&field.attrs, "serde", &hidden) {
                let word = &attr.word;
                let message = format!(
                    "`#[serde({word} = ..)]` changes how this field is stored in a way that the payload's schema \
                     can't see - add `#[schemars(with = \"T\")]` with a type `T` that is stored the same way"
                );
                problems.at(&attr.path, message);
            }
        }
    }

    pub(crate) fn route(&self, args: &Args, problems: &mut Problems) -> Option<RouteDeclaration> {
        let arg = args.get("route")?;
        let text = args.text("route", problems)?;
        let template = text.value();
        let parts = match parse_template(&template) {
            Ok(parts) => parts,
            Err(found) => {
                for problem in &found {
                    problems.at(&text, template_message(arg, &template, problem));
                }
                return None;
            }
        };
        let segments = parts.iter().filter_map(|part| match part {
            TemplatePart::Literal(text) => Some(RouteSegmentDeclaration::Literal((*text).to_owned())),
            TemplatePart::Field(name) => {
                let field = self.field(name, arg, &text, problems)?;
                Some(RouteSegmentDeclaration::Field(Box::new(field)))
            }
        });
        Some(RouteDeclaration { segments: segments.collect(), template: template.clone() })
    }

    /// The field that the attribute `word` names.
    pub(crate) fn key(&self, args: &Args, word: &str, problems: &mut Problems) -> Option<FieldDeclaration> {
        let arg = args.get(word)?;
        let text = args.text(word, problems)?;
        self.field(&text.value(), arg, &text, problems)
    }

    fn field(&self, name: &str, arg: &Arg, at: &LitStr, problems: &mut Problems) -> Option<FieldDeclaration> {
        let (quoted, payload) = (arg.quoted(), self.ident);
        let named = |field: &&Field| field.ident.as_ref().is_some_and(|ident| ident.unraw() == name);
        let Some(field) = self.fields.named.iter().find(named) else {
            let idents = self.fields.named.iter().filter_map(|field| field.ident.as_ref());
            let names: Vec<String> = idents.map(|ident| ident.unraw().to_string()).collect();
            let hint = hint::known(name, &names, "fields");
            problems.at(at, format!("{quoted}: `{payload}` has no field `{name}` - {hint}"));
            return None;
        };
        if is_option(&field.ty) {
            let message = format!(
                "{quoted}: field `{name}` is optional, and every message needs a value here - make it required, \
                 or name another field"
            );
            problems.at(at, message);
        }
        if serde_attr::find(&field.attrs, "serde", &["skip", "skip_serializing"]).is_some() {
            let message = format!(
                "{quoted}: field `{name}` is not part of the message, since serde skips it - remove the \
                 `#[serde(..)]` attribute, or name another field"
            );
            problems.at(at, message);
        }
        Some(FieldDeclaration { ident: field.ident.clone()?, ty: field.ty.clone() })
    }
}

fn template_message(arg: &Arg, template: &str, problem: &TemplateProblem) -> String {
    let quoted = arg.quoted();
    match template.get(problem.range.clone()) {
        Some(segment) if !segment.is_empty() && segment != template => {
            format!("{quoted}: {problem} - change the segment `{segment}`")
        }
        _ => format!("{quoted}: {problem}"),
    }
}

fn is_option(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "Option")
}
