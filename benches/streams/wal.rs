//! Write-ahead log a message, from the runs that were measured anyway.

use crate::report::{Row, bytes};
use crate::run::{Pairs, Run, median};

/// The runs that the figures are taken from, as far as they were made.
#[derive(Default)]
pub struct Sources {
    pub batches: Option<Pairs>,
    pub singles: Option<Pairs>,
    pub drain: Option<Pairs>,
    pub together: Option<Pairs>,
}

/// One row a figure; none where the database has no such figure.
pub fn rows(sources: &Sources) -> Vec<Row> {
    let mut rows = Vec::new();
    let batches = sources.batches.as_ref().and_then(each);
    if let Some((bare, ours)) = batches {
        rows.push(row("WAL bytes a message, batches", bare, ours, ""));
    }
    if let Some((bare, ours)) = sources.singles.as_ref().and_then(each) {
        // Beside the bare batches, as everywhere.
        rows.push(row("WAL bytes a message, singles by 64 callers", bare, ours, ""));
    }
    if let Some((bare, ours)) = sources.drain.as_ref().and_then(each) {
        rows.push(row("WAL bytes a message to consume, drain", bare, ours, "≤ 5"));
    }
    // What producing alone cost in this run of the benchmark is taken from what both cost.
    if let Some((bare, ours)) = sources.together.as_ref().and_then(each)
        && let Some((bare_produced, produced)) = batches
    {
        let figure = "WAL bytes a message to consume, together (less the batches')";
        rows.push(row(figure, bare - bare_produced, ours - produced, "≤ 5"));
    }
    rows
}

/// The medians of both sides.
fn each(pairs: &Pairs) -> Option<(f64, f64)> {
    let side = |runs: &[Run]| runs.iter().map(|run| run.wal).collect::<Option<Vec<_>>>().map(median);
    side(&pairs.bare).zip(side(&pairs.ours))
}

fn row(figure: &str, bare: f64, ours: f64, goal: &'static str) -> Row {
    Row::new(figure, bytes(bare), bytes(ours), "", goal)
}
