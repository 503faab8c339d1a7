//! Guesses at what was meant.

/// Ends a message about an unknown name: with the closest known one, else with all of them.
pub(crate) fn known(word: &str, known: &[String], noun: &str) -> String {
    match closest(word, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => format!("there are no {noun}"),
        None => format!("the {noun} are {}", list(known)),
    }
}

pub(crate) fn list(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

fn closest<'a>(word: &str, known: &'a [String]) -> Option<&'a String> {
    let bound = (word.chars().count() / 3).max(1);
    let distances = known.iter().map(|name| (distance(word, name), name));
    let (_, name) = distances.filter(|(distance, _)| *distance <= bound).min_by_key(|(d, _)| *d)?;
    Some(name)
}

/// The number of letters to insert, remove, replace or swap with their neighbour.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for i in 0..left.len() {
        let mut row = vec![i + 1];
        for j in 0..right.len() {
            let replaced = above[j] + usize::from(left[i] != right[j]);
            let mut best = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && left[i] == right[j - 1] && left[i - 1] == right[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = above;
        above = row;
    }
    above[right.len()]
}

/// Writes a type's name as a name of a stream or group: `OrderPlaced` as `order-placed`.
pub(crate) fn kebab(ident: &str) -> String {
    let mut name = String::new();
    for character in ident.chars() {
        if character.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        if character.is_ascii_alphanumeric() {
            name.push(character.to_ascii_lowercase());
        }
    }
    name
}

/// Brings a name closer to the rules: lower-case, `-` for blanks.
pub(crate) fn tidy(name: &str) -> String {
    let name = name.trim().trim_matches(['.', '_', '-']).to_lowercase();
    name.replace(char::is_whitespace, "-").replace("..", ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        for (left, right, expected) in [
            ("name", "name", 0),
            ("naem", "name", 1),
            ("nam", "name", 1),
            ("nome", "name", 1),
            ("", "name", 4),
            ("rotue", "route", 1),
            ("key", "route", 5),
        ] {
            assert_eq!(distance(left, right), expected, "{left} {right}");
        }
    }

    #[test]
    fn a_close_name_is_suggested_and_a_far_one_is_not() {
        let names = ["name".to_owned(), "route".to_owned()];
        assert_eq!(known("naem", &names, "fields"), "did you mean `name`?");
        assert_eq!(known("topic", &names, "fields"), "the fields are `name`, `route`");
        assert_eq!(known("topic", &[], "fields"), "there are no fields");
    }

    #[test]
    fn names_are_made_of_idents_and_texts() {
        assert_eq!(kebab("OrderPlaced"), "order-placed");
        assert_eq!(tidy(" Orders Placed"), "orders-placed");
    }
}
