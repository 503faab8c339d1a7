//! How many ids a claim asks for: as many as the handlers get through in a tenth of a second, and no more
//! bytes than a process should hold.

use std::time::Duration;

/// A range should last about this long: long enough that claims cost little, short enough that a crash
/// repeats little and other processes get their share.
const RANGE_LASTS: Duration = Duration::from_millis(100);
const WIDEST: i64 = 2000;
/// What a range may hold in memory, by the moving average of a message's size.
const RANGE_BYTES: f64 = 4.0 * 1024.0 * 1024.0;
/// Weight of the newest range in the averages.
const NEWEST: f64 = 0.3;

#[derive(Debug)]
pub(crate) struct Pace {
    narrowest: i64,
    /// Seconds a message, by range: handling time over messages.
    seconds: Option<f64>,
    bytes: f64,
}

impl Pace {
    /// `concurrency`: what the handlers can start at once, so the least that is worth claiming.
    pub(crate) fn new(concurrency: usize) -> Self {
        Self { narrowest: i64::try_from(concurrency).unwrap_or(WIDEST).clamp(1, WIDEST), seconds: None, bytes: 1024.0 }
    }

    /// A range of `messages` messages was handled `took` after its handlers got to it.
    pub(crate) fn handled(&mut self, messages: usize, took: Duration) {
        if messages > 0 {
            let seconds = took.as_secs_f64() / messages as f64;
            self.seconds = Some(self.seconds.map_or(seconds, |old| old + NEWEST * (seconds - old)));
        }
    }

    /// `messages` messages had `bytes` bytes.
    pub(crate) fn read(&mut self, messages: usize, bytes: usize) {
        if messages > 0 {
            self.bytes += NEWEST * (bytes as f64 / messages as f64 - self.bytes);
        }
    }

    /// Ids to ask for.
    pub(crate) fn width(&self) -> i64 {
        let by_time = match self.seconds {
            Some(seconds) if seconds > 0.0 => RANGE_LASTS.as_secs_f64() / seconds,
            Some(_) => WIDEST as f64,
            None => 100.0,
        };
        let by_bytes = RANGE_BYTES / self.bytes.max(1.0);
        let width = by_time.min(by_bytes) as i64;
        width.clamp(self.narrowest.min(by_bytes.max(1.0) as i64).max(1), WIDEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_handlers_get_wide_ranges_and_slow_ones_what_they_can_start() {
        let mut pace = Pace::new(8);
        pace.handled(100, Duration::from_micros(200));
        assert_eq!(pace.width(), WIDEST);
        for _ in 0..50 {
            pace.handled(8, Duration::from_secs(8));
        }
        assert_eq!(pace.width(), 8);
    }

    #[test]
    fn large_messages_narrow_a_range_below_the_concurrency() {
        let mut pace = Pace::new(64);
        for _ in 0..50 {
            pace.read(10, 10 * 2 * 1024 * 1024);
        }
        assert_eq!(pace.width(), 2);
    }
}
