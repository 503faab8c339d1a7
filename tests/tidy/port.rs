//! The port and the tests that hold every backend to it.

use super::rust::{self, Token, functions, stands};
use super::tree::File;

/// The methods that a trait declares.
pub fn methods(source: &File, name: &str) -> Vec<String> {
    let tokens = rust::code(&source.text);
    let Some(at) = (0..tokens.len()).find(|at| stands(&tokens, *at, &["trait", name])) else { return Vec::new() };
    let Some(open) = (at..tokens.len()).find(|at| tokens[*at].is("{")) else { return Vec::new() };
    let body: &[Token] = &tokens[open..rust::closing(&tokens, open)];
    functions(body).into_iter().map(|function| function.name).collect()
}

/// Problems of port methods without a conformance test: `noun_verb` needs a function in `<noun>.rs` whose
/// name begins with the verb. A method that is a bare verb belongs to the noun `backend`.
pub fn untested(methods: &[String], tests: &[&File]) -> Vec<String> {
    let tested = |method: &&String| {
        let bare = ("backend", method.as_str());
        let splits = method.match_indices('_').map(|(at, _)| (&method[..at], &method[at + 1..]));
        let splits: Vec<(&str, &str)> = if method.contains('_') { splits.collect() } else { vec![bare] };
        splits.iter().any(|(noun, verb)| {
            let file = tests.iter().find(|file| file.stem() == *noun);
            let names = file.map(|file| functions(&rust::tokens(&file.text))).unwrap_or_default();
            names.iter().any(|test| test.name == *verb || test.name.starts_with(&format!("{verb}_")))
        })
    };
    let missing = methods.iter().filter(|method| !tested(method));
    missing.map(|method| format!("port method {method} has no conformance test: <noun>.rs, fn <verb>_…")).collect()
}

#[test]
fn a_port_method_without_a_test_is_found() {
    let port = File::new(
        "mod.rs",
        "struct A; #[async_trait]\npub trait Backend: Send {\n  async fn claim_take(&self, p: &P) -> R;\n  async fn dead_letter_list(&self);\n  async fn close(&self) { inner() }\n}\nfn after() {}",
    );
    let methods = methods(&port, "Backend");
    assert_eq!(methods, ["claim_take", "dead_letter_list", "close"]);
    let claim = File::new("conformance/claim.rs", "pub async fn take_skips_what_is_leased(b: &dyn Backend) {}");
    let dead = File::new("conformance/dead_letter.rs", "async fn list_is_in_order() {}");
    let backend = File::new("conformance/backend.rs", "async fn close_ends_waits() {}");
    assert!(untested(&methods, &[&claim, &dead, &backend]).is_empty());
    assert_eq!(untested(&methods, &[&claim, &backend]).len(), 1);
    assert_eq!(untested(&methods, &[&File::new("conformance/claim.rs", "fn taking_is_fun() {}"), &dead]).len(), 2);
}
