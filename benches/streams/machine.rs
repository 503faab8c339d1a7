//! What the figures were measured on.

use std::fs;
use std::io::{Seek, Write};
use std::path::Path;
use std::time::Instant;

use crate::run::{Result, median};

/// One line a fact.
pub fn describe(folder: &Path) -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut lines = vec![format!("{cores} cores{}, shared by the benchmark and the database", processor())];
    if let Some(gib) = memory() {
        lines.push(format!("{gib:.0} GiB of memory"));
    }
    if let Ok(kernel) = fs::read_to_string("/proc/sys/kernel/osrelease") {
        lines.push(format!("kernel {}", kernel.trim()));
    }
    if let Ok(load) = fs::read_to_string("/proc/loadavg") {
        let load: Vec<_> = load.split(' ').take(3).collect();
        lines.push(format!("load average at the start: {}", load.join(" ")));
    }
    match sync_micros(folder) {
        Ok(micros) => lines.push(format!("writing 8 kB and fdatasync: {micros:.0} µs")),
        Err(err) => lines.push(format!("fdatasync not measured: {err}")),
    }
    lines
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let name = name.trim_start_matches([' ', '\t', ':']);
    if name.is_empty() { String::new() } else { format!(" ({name})") }
}

fn memory() -> Option<f64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib / 1024.0 / 1024.0)
}

/// The median of what `pg_test_fsync` calls one 8kB write with fdatasync.
fn sync_micros(folder: &Path) -> Result<f64> {
    const TIMES: usize = 500;
    let mut file = tempfile::tempfile_in(folder)?;
    let block = [7; 8 * 1024];
    file.write_all(&block)?;
    file.sync_all()?;
    let mut took = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let start = Instant::now();
        file.rewind()?;
        file.write_all(&block)?;
        file.sync_data()?;
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(took))
}
