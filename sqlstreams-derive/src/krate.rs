use syn::{LitStr, Path, parse_quote};

use crate::args::Args;
use crate::problems::Problems;

/// The path to `sqlstreams` that generated code uses.
pub(crate) fn read(args: &Args, problems: &mut Problems) -> Path {
    let text = args.text("crate", problems);
    text.and_then(|text| parse(&text, problems)).unwrap_or_else(default)
}

pub(crate) fn default() -> Path {
    parse_quote!(::sqlstreams)
}

pub(crate) fn parse(text: &LitStr, problems: &mut Problems) -> Option<Path> {
    let path = text.parse_with(Path::parse_mod_style).ok();
    if path.is_none() {
        let value = text.value();
        problems.at(text, format!("`crate = \"{value}\"` is not a path - write `crate = \"my_crate::sqlstreams\"`"));
    }
    path
}
