//! Statement texts: loaded from `.sql` files, filled once with the installation's and the stream's names.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// The names that a statement's placeholders stand for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    /// `{schema}`: the Postgres schema, or the prefix of the tables on SQLite. Checked when the client is built.
    pub(crate) schema: &'a str,
    /// `{stream}`: the suffix of a stream's tables.
    pub(crate) stream: i64,
}

impl Names<'_> {
    /// The statement's text with its placeholders filled. Of the comments only the first line, the owner
    /// tag, reaches the database.
    pub(crate) fn fill(self, text: &str) -> SqlStr {
        let mut filled = String::with_capacity(text.len());
        for (number, line) in text.lines().enumerate() {
            if number == 0 || !line.starts_with("--") {
                filled.push_str(line);
                filled.push('\n');
            }
        }
        let filled = filled.replace("{schema}", self.schema).replace("{stream}", &self.stream.to_string());
        // The schema's name consists of letters, digits and underscores; the stream is an integer.
        AssertSqlSafe(filled).into_sql_str()
    }
}

/// Declares a struct of statements, one field a file of the folder `sql` beside the invocation.
macro_rules! statements {
    ($(#[$doc:meta])* $name:ident { $($file:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name {
            $(pub(crate) $file: ::sqlx::SqlStr,)*
        }

        impl $name {
            pub(crate) fn fill(names: $crate::backend::template::Names<'_>) -> Self {
                Self {
                    $($file: names.fill(include_str!(concat!("sql/", stringify!($file), ".sql"))),)*
                }
            }

            /// Every statement with its name, so that a test can prepare each of them.
            pub(crate) fn all(&self) -> Vec<(&'static str, ::sqlx::SqlStr)> {
                vec![$((stringify!($file), self.$file.clone()),)*]
            }
        }
    };
}
pub(crate) use statements;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_keeps_the_owner_tag_and_drops_other_comments() {
        let names = Names { schema: "s", stream: 7 };
        let filled = names.fill("-- sqlstreams: claim.take\n-- why\nselect 1 from \"{schema}\".\"log_{stream}\"\n");
        assert_eq!(filled.as_str(), "-- sqlstreams: claim.take\nselect 1 from \"s\".\"log_7\"\n");
    }
}
