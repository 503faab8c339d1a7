//! What happened to every message, and what that says about a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;

/// What a process tells of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A produce returned its id.
    Acknowledged,
    /// A produce failed, and it is certain that nothing was stored.
    Refused,
    /// A handler came to its end.
    Handled,
}

/// One event of the record.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub at: Instant,
    pub message: u64,
    pub what: What,
}

/// The record of a run. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Record {
    events: Arc<Mutex<Vec<Event>>>,
    failures: Arc<Mutex<Vec<String>>>,
    complaints: Arc<Mutex<Vec<(Instant, String)>>>,
    shares: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Record {
    /// Notes an event of now.
    pub fn note(&self, what: What, message: u64) {
        lock(&self.events).push(Event { at: Instant::now(), message, what });
    }

    /// Notes what a process says until it ends: `acknowledged 7.`, `refused 7.`, `handled 7.`, `failed why`. The full
    /// stop tells a whole line from what a killed process left of one.
    pub async fn listen(self, process: String, mut lines: UnboundedReceiver<String>) {
        while let Some(line) = lines.recv().await {
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            let message = rest.strip_suffix('.').and_then(|number| number.parse().ok());
            match (word, message) {
                ("acknowledged", Some(message)) => self.note(What::Acknowledged, message),
                ("refused", Some(message)) => self.note(What::Refused, message),
                ("handled", Some(message)) => {
                    *lock(&self.shares).entry(process.clone()).or_default() += 1;
                    self.note(What::Handled, message);
                }
                ("failed", _) => lock(&self.failures).push(format!("{process}: {rest}")),
                ("complaint", _) => lock(&self.complaints).push((Instant::now(), format!("{process}: {rest}"))),
                _ => {}
            }
        }
    }

    /// For a run that does not come to its end: what happened in the last seconds, and what was complained of last.
    pub fn last_words(&self) -> String {
        let now = Instant::now();
        let recent = |event: &&Event| now - event.at < Duration::from_secs(5);
        let events = self.events();
        let count = |what| events.iter().filter(recent).filter(|event| event.what == what).count();
        let complaints = lock(&self.complaints);
        let ages = complaints.iter().rev().take(10).map(|(at, text)| format!("{:?} ago, {text}", now - *at));
        format!(
            "in 5 s {} acknowledged and {} handled; by {:?}; {:?} {:#?}",
            count(What::Acknowledged),
            count(What::Handled),
            lock(&self.shares),
            self.failures(),
            ages.collect::<Vec<_>>()
        )
    }

    /// Everything so far.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }

    /// How many events of a kind there are.
    pub fn count(&self, what: What) -> usize {
        lock(&self.events).iter().filter(|event| event.what == what).count()
    }

    /// Acknowledged messages that nobody has handled yet, but for those in `without`.
    pub fn open(&self, without: &BTreeSet<u64>) -> Vec<u64> {
        let messages = Messages::of(&self.events());
        let open = messages.acknowledged.keys().filter(|message| !messages.handled.contains_key(message));
        open.filter(|message| !without.contains(message)).copied().collect()
    }

    /// What processes said that ended by themselves.
    pub fn failures(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events by message.
struct Messages {
    acknowledged: BTreeMap<u64, Instant>,
    refused: BTreeSet<u64>,
    handled: BTreeMap<u64, Vec<Instant>>,
}

impl Messages {
    fn of(events: &[Event]) -> Self {
        let mut messages = Self { acknowledged: BTreeMap::new(), refused: BTreeSet::new(), handled: BTreeMap::new() };
        for event in events {
            match event.what {
                What::Acknowledged => drop(messages.acknowledged.insert(event.message, event.at)),
                What::Refused => drop(messages.refused.insert(event.message)),
                What::Handled => messages.handled.entry(event.message).or_default().push(event.at),
            }
        }
        messages
    }
}

/// When a fault was, and what it may do.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Its first moment.
    pub from: Instant,
    /// Its last; from here on nothing keeps the system from working.
    pub until: Instant,
    /// What was handled that long before it may be handled again.
    pub back: Duration,
    /// What was handled that long after it may be handled again.
    pub ahead: Duration,
    /// How often a message may be handled again.
    pub again: usize,
    /// Acknowledged messages that went with a server.
    pub gone: BTreeSet<u64>,
    /// Acknowledged messages that ended as dead letters, as they should.
    pub dead: BTreeSet<u64>,
}

/// The measured line of a fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub acknowledged: usize,
    /// Acknowledged and never handled.
    pub lost: Vec<u64>,
    /// Acknowledged by a server that went, with them.
    pub gone: usize,
    /// Handlings beyond a message's first.
    pub again: usize,
    /// From the end of the fault until messages are handled as fast as before it; none if that never came.
    pub full_speed: Option<Duration>,
    /// The longest time from an acknowledgement to the first handling.
    pub slowest: Duration,
    /// What must not be: a reason each.
    pub wrong: Vec<String>,
}

/// Half a second decides about the speed.
const WINDOW: Duration = Duration::from_millis(500);

/// What the events say about the fault.
pub fn judge(events: &[Event], fault: &Fault) -> Line {
    let messages = Messages::of(events);
    let is_excused = |message: &u64| fault.gone.contains(message) || fault.dead.contains(message);
    let lost = messages.acknowledged.keys().filter(|message| !messages.handled.contains_key(message));
    let lost: Vec<u64> = lost.filter(|message| !is_excused(message)).copied().collect();
    let waits = messages.acknowledged.iter().filter_map(|(message, at)| {
        let first = messages.handled.get(message)?.first()?;
        Some(first.saturating_duration_since(*at))
    });
    Line {
        acknowledged: messages.acknowledged.len(),
        lost,
        gone: fault.gone.iter().filter(|message| !messages.handled.contains_key(message)).count(),
        again: messages.handled.values().map(|times| times.len() - 1).sum(),
        full_speed: full_speed(&messages, fault),
        slowest: waits.max().unwrap_or_default(),
        wrong: wrong(&messages, fault),
    }
}

fn wrong(messages: &Messages, fault: &Fault) -> Vec<String> {
    let mut wrong = Vec::new();
    for (message, times) in &messages.handled {
        if messages.refused.contains(message) {
            wrong.push(format!("{message} was handled, and its produce said that it is not stored"));
        }
        if fault.dead.contains(message) {
            wrong.push(format!("{message} was handled, and is dead"));
        }
        if times.len() - 1 > fault.again {
            wrong.push(format!("{message} was handled {} times", times.len()));
        }
        let near = times[0] + fault.back >= fault.from && times[0] <= fault.until + fault.ahead;
        if times.len() > 1 && !near {
            let before = fault.from.saturating_duration_since(times[0]);
            let after = times[0].saturating_duration_since(fault.until);
            wrong.push(format!("{message} was handled {before:?} before the fault or {after:?} after it, and again"));
        }
    }
    wrong
}

/// Full is four fifths of the speed before: half a second is a short time. It is that of first handlings: a backlog that is worked off is not slower than before.
fn full_speed(messages: &Messages, fault: &Fault) -> Option<Duration> {
    let mut firsts: Vec<Instant> = messages.handled.values().map(|times| times[0]).collect();
    firsts.sort_unstable();
    let earlier = |time: Instant| firsts.partition_point(|at| *at < time);
    let within = |from: Instant, time: Duration| earlier(from + time) - earlier(from);
    let begin = *firsts.first()?;
    let before = fault.from.saturating_duration_since(begin);
    let enough = 0.8 * within(begin, before) as f64 * WINDOW.as_secs_f64() / before.as_secs_f64();
    let last = *firsts.last()?;
    let steps = (0..).map(|step| WINDOW / 10 * step);
    let mut reached = steps.take_while(|step| fault.until + *step + WINDOW <= last);
    reached.find(|step| within(fault.until + *step, WINDOW) as f64 >= enough)
}

impl Line {
    /// As a row of the table.
    pub fn row(&self, database: &str, fault: &str) -> String {
        let gone = if self.gone == 0 { String::new() } else { format!(" (and {} with the server)", self.gone) };
        let speed = self.full_speed.map_or("never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
        format!(
            "| {database} | {fault} | {} | {}{gone} | {} | {speed} | {:.1} s |",
            self.acknowledged,
            self.lost.len(),
            self.again,
            self.slowest.as_secs_f64()
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a fault of {:?}", self.until - self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Ten messages a second for thirty seconds, handled at once; the fault is from second 10 to 12.
    fn run() -> (Instant, Vec<Event>, Fault) {
        let start = Instant::now();
        let mut events = Vec::new();
        for message in 0..300 {
            let at = start + Duration::from_millis(100) * message;
            for what in [What::Acknowledged, What::Handled] {
                events.push(Event { at, message: u64::from(message), what });
            }
        }
        let (from, until) = (start + 10 * SECOND, start + 12 * SECOND);
        let none = BTreeSet::new;
        (start, events, Fault { from, until, back: SECOND, ahead: SECOND, again: 1, gone: none(), dead: none() })
    }

    #[test]
    fn a_run_without_trouble_has_a_clean_line() {
        let (_, events, fault) = run();
        let line = judge(&events, &fault);
        assert_eq!((line.acknowledged, line.again, line.gone), (300, 0, 0));
        assert_eq!((&*line.lost, &*line.wrong), (&[][..], &[][..]));
        assert_eq!((line.full_speed, line.slowest), (Some(Duration::ZERO), Duration::ZERO));
        assert_eq!(line.row("a", "b"), "| a | b | 300 | 0 | 0 | 0.0 s | 0.0 s |");
    }

    #[test]
    fn a_message_that_nobody_handled_is_lost_unless_its_server_went_with_it_or_it_is_dead() {
        let (_, mut events, mut fault) = run();
        events.retain(|event| event.what == What::Acknowledged || ![7, 8, 9].contains(&event.message));
        assert_eq!(judge(&events, &fault).lost, [7, 8, 9]);
        fault.gone.insert(8);
        fault.dead.insert(9);
        let line = judge(&events, &fault);
        assert_eq!((&*line.lost, line.gone), (&[7][..], 1));
    }

    #[test]
    fn only_what_was_handled_around_the_fault_may_be_handled_again_and_so_often() {
        let (start, events, fault) = run();
        let with = |messages: &[u64]| {
            let at = start + 20 * SECOND;
            let more = messages.iter().map(|message| Event { at, message: *message, what: What::Handled });
            judge(&events.iter().copied().chain(more).collect::<Vec<_>>(), &fault)
        };
        let line = with(&[95, 129]);
        assert_eq!((line.again, line.wrong.len()), (2, 0), "{:?}", line.wrong);
        assert_eq!(with(&[85]).wrong.len(), 1, "too long before");
        assert_eq!(with(&[135]).wrong.len(), 1, "too long after");
        assert_eq!(with(&[100, 100]).wrong.len(), 1, "too often");
    }

    #[test]
    fn what_was_refused_or_is_dead_must_not_be_handled() {
        let (start, mut events, mut fault) = run();
        events.push(Event { at: start, message: 4, what: What::Refused });
        fault.dead.insert(5);
        assert_eq!(judge(&events, &fault).wrong.len(), 2);
    }

    #[test]
    fn the_speed_is_full_when_as_much_is_handled_as_before() {
        let (start, mut events, fault) = run();
        // Nothing of what was to be handled in seconds 10 to 15 was, until second 15.
        for event in events.iter_mut().filter(|event| event.what == What::Handled) {
            if event.at >= start + 10 * SECOND && event.at < start + 15 * SECOND {
                event.at = start + 15 * SECOND;
            }
        }
        let line = judge(&events, &fault);
        let reached = line.full_speed.expect("it is reached");
        assert!(reached >= Duration::from_millis(2500) && reached <= 3 * SECOND, "{reached:?}");
        assert_eq!(line.slowest, 5 * SECOND);
    }

    #[tokio::test]
    async fn half_a_line_of_a_killed_process_is_not_taken_for_a_message() {
        let (sender, lines) = tokio::sync::mpsc::unbounded_channel();
        for line in ["acknowledged 12.", "handled 1", "handled 12.", "refused 3.", "failed to go on"] {
            sender.send(line.to_owned()).expect("it is heard");
        }
        drop(sender);
        let record = Record::default();
        record.clone().listen("one".to_owned(), lines).await;
        let seen: Vec<_> = record.events().iter().map(|event| (event.what, event.message)).collect();
        assert_eq!(seen, [(What::Acknowledged, 12), (What::Handled, 12), (What::Refused, 3)]);
        assert_eq!(record.failures(), ["one: to go on"]);
    }
}
