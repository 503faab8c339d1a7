//! The tables.

use std::fmt::{Display, Write};

use crate::claim::Held;
use crate::latency::{Latencies, Percentiles};
use crate::options::Options;
use crate::run::{Pairs, Run, median};

/// One line of a table.
pub struct Row {
    cells: [String; 5],
}

impl Row {
    pub fn new(figure: &str, bare: String, ours: String, ratio: impl Into<String>, goal: &str) -> Self {
        Self { cells: [figure.to_owned(), bare, ours, ratio.into(), goal.to_owned()] }
    }

    /// Messages a second, with the median and the range of the pairs' ratios.
    pub fn rate(figure: &str, pairs: &Pairs, goal: &str) -> Self {
        let side = |runs: &[Run]| thousands(median(runs.iter().map(Run::rate)));
        Self::new(figure, side(&pairs.bare), side(&pairs.ours), ratio(&pairs.ratios()), goal)
    }

    /// A figure that could not be taken.
    pub fn failed(figure: &str, why: &dyn Display) -> Self {
        Self::new(figure, String::new(), format!("**failed**: {why}"), "", "")
    }
}

/// The median, and the range when there are several.
fn ratio(ratios: &[f64]) -> String {
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.2} ({low:.2}–{high:.2})", median(ratios.iter().copied()))
}

/// Milliseconds, each row against the bare statements.
pub fn latency_rows(all: &Latencies) -> Vec<Row> {
    let bare = Percentiles::medians(&all.bare);
    let row = |figure: &str, rounds: &[Percentiles], goal: &str| {
        let ratios: Vec<f64> = rounds.iter().zip(&all.bare).map(|(ours, bare)| ours.p50 / bare.p50).collect();
        let figure = format!("latency p50 / p95 / p99 in ms, {figure}");
        Row::new(&figure, bare.to_string(), Percentiles::medians(rounds).to_string(), ratio(&ratios), goal)
    };
    vec![
        row("one stream", &all.alone, "p50 ≤ 2.5, p99 ≤ 6"),
        row("with four other streams", &all.among_others, "p50 ≤ 2.5, p99 ≤ 6"),
        row("consumer in another process", &all.other_process, ""),
    ]
}

/// Claims by partitions, each against the first.
pub fn partition_rows(all: &[(i64, f64)]) -> Vec<Row> {
    let first = all.first().map_or(f64::NAN, |(_, micros)| *micros);
    let rows = all.iter().enumerate().map(|(number, (partitions, micros))| {
        let figure = format!("claim, read and settle one message, µs, partitions in use: {partitions}");
        let (ratio, goal) =
            if number == 0 { (String::new(), "") } else { (format!("{:.2} of the first", micros / first), "≤ 1.3") };
        Row::new(&figure, String::new(), format!("{micros:.0}"), ratio, goal)
    });
    rows.collect()
}

/// Claims under a held snapshot, against those before it.
pub fn held_rows(held: &Held, options: &Options) -> Vec<Row> {
    let minutes = options.held.as_secs_f64() / 60.0;
    let figure = "claim, read and settle one message, µs,";
    vec![
        Row::new(&format!("{figure} before a snapshot is held"), String::new(), format!("{:.0}", held.before), "", ""),
        Row::new(
            &format!("{figure} after {minutes} min under it"),
            String::new(),
            format!("{:.0}", held.after),
            format!("{:.2} of before, {:.2} of new", held.after / held.before, held.after / held.fresh),
            "≤ 1.3",
        ),
        Row::new(&format!("{figure} a new stream then"), String::new(), format!("{:.0}", held.fresh), "", ""),
    ]
}

/// The rows as a table in Markdown.
pub fn table(title: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "### {title}\n\n| figure | bare sqlx | sqlstreams | ratio | to reach |\n| --- | ---: | ---: | --- | --- |\n"
    );
    for row in rows {
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} |", row.cells.join(" | "));
    }
    text
}

/// Bytes with one decimal, without a sign on zero.
pub fn bytes(bytes: f64) -> String {
    let text = format!("{bytes:.1}");
    if text == "-0.0" { "0.0".to_owned() } else { text }
}

/// `92,400` for 92400.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
