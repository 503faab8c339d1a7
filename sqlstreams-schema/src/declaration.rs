use std::fmt;
use std::time::Duration;

use crate::policy::{DeliveryLog, KeyPolicy, RetryPolicy};

/// What a group declares. Registration compares it with what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// The patterns of the routing keys that the group handles. None of them: the whole stream.
    pub bindings: &'static [&'static str],
    /// What the group promises about messages of one key.
    pub keys: KeyPolicy,
    /// When a message that failed is tried again.
    pub retry: RetryPolicy,
    /// How long one handler call may take.
    pub timeout: Duration,
    /// Where the group begins when it is registered for the first time.
    pub start: Start,
    /// Which attempts leave a row in the group's delivery log.
    pub delivery_log: DeliveryLog,
}

impl GroupConfig {
    /// The whole stream from its beginning, in parallel, with the default retries, 30 seconds a call and no delivery log.
    pub const DEFAULT: GroupConfig = GroupConfig {
        bindings: &[],
        keys: KeyPolicy::Parallel,
        retry: RetryPolicy::DEFAULT,
        timeout: Duration::from_secs(30),
        start: Start::Beginning,
        delivery_log: DeliveryLog::Off,
    };

    /// Checks that the numbers fit each other.
    ///
    /// # Errors
    ///
    /// The first rule that they break.
    pub const fn check(&self) -> Result<(), ConfigProblem> {
        if self.timeout.is_zero() {
            return Err(ConfigProblem::NoTimeout);
        }
        if self.retry.max_delay.as_nanos() < self.retry.first_delay.as_nanos() {
            return Err(ConfigProblem::MaxDelayBelowFirst);
        }
        Ok(())
    }
}

impl Default for GroupConfig {
    fn default() -> Self {
        GroupConfig::DEFAULT
    }
}

/// The rule that a group's numbers break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// A handler call may take no time at all.
    NoTimeout,
    /// The longest delay is shorter than the first.
    MaxDelayBelowFirst,
}

impl ConfigProblem {
    /// Says the rule.
    pub const fn text(&self) -> &'static str {
        match self {
            ConfigProblem::NoTimeout => "a handler call needs some time",
            ConfigProblem::MaxDelayBelowFirst => "the longest delay is at least the first delay",
        }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for ConfigProblem {}

/// Where a group begins when it is registered for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Start {
    /// At the oldest message that is still stored.
    #[default]
    Beginning,
    /// Behind the newest message at the time of registration.
    Head,
    /// At the message with this id, or the next one.
    Id(i64),
    /// At the first message of this time or later, in microseconds since 1970-01-01 UTC.
    Time(i64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_fit_each_other() {
        const DEFAULT: GroupConfig = GroupConfig::DEFAULT;
        const _: () = assert!(DEFAULT.check().is_ok());
        let mut config = DEFAULT;
        config.retry.first_delay = config.retry.max_delay;
        assert_eq!(config.check(), Ok(()));
        config.retry.first_delay += Duration::from_nanos(1);
        assert_eq!(config.check(), Err(ConfigProblem::MaxDelayBelowFirst));
        config.timeout = Duration::ZERO;
        assert_eq!(config.check(), Err(ConfigProblem::NoTimeout));
    }
}
