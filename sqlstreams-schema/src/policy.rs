use std::time::Duration;

/// What a group promises about messages of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyPolicy {
    /// Nothing: messages of one key may run at the same time and in any order.
    #[default]
    Parallel,
    /// At most one message of a key runs at a time, in any order.
    Exclusive,
    /// Messages of a key run one after another, in the order of the stream.
    Ordered,
}

impl KeyPolicy {
    /// Every policy.
    pub const ALL: [KeyPolicy; 3] = [KeyPolicy::Parallel, KeyPolicy::Exclusive, KeyPolicy::Ordered];

    /// Returns the word that declarations use.
    pub const fn as_str(&self) -> &'static str {
        match self {
            KeyPolicy::Parallel => "parallel",
            KeyPolicy::Exclusive => "exclusive",
            KeyPolicy::Ordered => "ordered",
        }
    }

    /// Reads the word that declarations use.
    pub fn parse(text: &str) -> Option<KeyPolicy> {
        KeyPolicy::ALL.into_iter().find(|policy| policy.as_str() == text)
    }

    /// Whether the policy means something only on a stream that declares a key.
    pub const fn needs_key(&self) -> bool {
        !matches!(self, KeyPolicy::Parallel)
    }
}

/// Which attempts of a group leave a row in its delivery log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeliveryLog {
    /// None: a message that succeeds costs no row.
    #[default]
    Off,
    /// Those that did not succeed.
    Failures,
    /// All.
    All,
}

impl DeliveryLog {
    /// Every mode.
    pub const ALL: [DeliveryLog; 3] = [DeliveryLog::Off, DeliveryLog::Failures, DeliveryLog::All];

    /// Returns the word that declarations use.
    pub const fn as_str(&self) -> &'static str {
        match self {
            DeliveryLog::Off => "off",
            DeliveryLog::Failures => "failures",
            DeliveryLog::All => "all",
        }
    }

    /// Reads the word that declarations use.
    pub fn parse(text: &str) -> Option<DeliveryLog> {
        DeliveryLog::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

/// When a message that failed is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often a message is tried again after its first failure.
    pub retries: u32,
    /// The delay after the first failure.
    pub first_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
    /// By how much each delay exceeds the one before.
    pub factor: u32,
    /// By how much a delay may be shortened at random, so that failures do not come back in one wave.
    pub jitter_percent: u32,
}

impl RetryPolicy {
    /// Five retries after 1, 2, 4, 8 and 16 seconds, less up to 20 %; never more than 5 minutes.
    pub const DEFAULT: RetryPolicy = RetryPolicy {
        retries: 5,
        first_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(5 * 60),
        factor: 2,
        jitter_percent: 20,
    };

    /// Returns the delay before the next attempt of a message that failed `failures` times.
    ///
    /// `random` is a number from 0 to 1 and chooses within the jitter; 0 is the full delay. For one value of
    /// it the delay never shrinks as failures grow, and never exceeds `max_delay`.
    pub fn delay_after(&self, failures: u32, random: f64) -> Duration {
        let full = self.full_delay(failures).as_nanos();
        // A cast takes NaN to 0; whole numbers keep the arithmetic exact up to the longest duration.
        let millionths = (random.clamp(0.0, 1.0) * 1_000_000.0) as u128;
        let jitter = full * u128::from(self.jitter_percent.min(100)) / 100 * millionths / 1_000_000;
        Duration::from_nanos_u128(full - jitter)
    }

    fn full_delay(&self, failures: u32) -> Duration {
        let factor = self.factor.max(1);
        let mut delay = self.first_delay.min(self.max_delay);
        if factor == 1 || delay.is_zero() {
            return delay;
        }
        for _ in 1..failures {
            delay = delay.saturating_mul(factor).min(self.max_delay);
            if delay == self.max_delay {
                break;
            }
        }
        delay
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_words_of_policies_read_back() {
        for policy in KeyPolicy::ALL {
            assert_eq!(KeyPolicy::parse(policy.as_str()), Some(policy));
        }
        assert_eq!(KeyPolicy::parse("Ordered"), None);
        assert!(!KeyPolicy::Parallel.needs_key());
        assert!(KeyPolicy::Exclusive.needs_key() && KeyPolicy::Ordered.needs_key());
    }

    #[test]
    fn the_words_of_delivery_logs_read_back() {
        for mode in DeliveryLog::ALL {
            assert_eq!(DeliveryLog::parse(mode.as_str()), Some(mode));
        }
        assert_eq!(DeliveryLog::parse("success"), None);
        assert_eq!(DeliveryLog::default(), DeliveryLog::Off);
    }

    #[test]
    fn the_default_policy_doubles_from_one_second_to_its_cap() {
        let delays: Vec<u64> =
            (1..=10).map(|failures| RetryPolicy::DEFAULT.delay_after(failures, 0.0).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        let shortest = RetryPolicy::DEFAULT.delay_after(1, 1.0);
        assert_eq!(shortest, Duration::from_millis(800));
    }

    #[test]
    fn odd_numbers_do_no_harm() {
        let odd = RetryPolicy {
            retries: 0,
            first_delay: Duration::MAX,
            max_delay: Duration::MAX,
            factor: 0,
            jitter_percent: 900,
        };
        assert_eq!(odd.delay_after(0, f64::NAN), Duration::MAX);
        assert_eq!(odd.delay_after(u32::MAX, 1.0), Duration::ZERO);
        assert_eq!(odd.delay_after(3, -4.0), Duration::MAX);
    }

    proptest! {
        #[test]
        fn delays_grow_and_stay_below_the_cap(
            first in any::<u64>(),
            max in any::<u64>(),
            factor in any::<u32>(),
            jitter_percent in 0_u32..200,
            failures in any::<u32>(),
            random in 0.0..=1.0,
        ) {
            let policy = RetryPolicy {
                retries: 5,
                first_delay: Duration::from_micros(first),
                max_delay: Duration::from_micros(max),
                factor,
                jitter_percent,
            };
            let delay = policy.delay_after(failures, random);
            prop_assert!(delay <= policy.max_delay);
            prop_assert!(delay >= policy.delay_after(failures.saturating_sub(1), random));
        }
    }
}
