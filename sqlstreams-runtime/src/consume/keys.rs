//! Message keys in one process: one message of a key at a time, in id order.
//!
//! A message starts when no lower one of its key is unfinished here (its *chain*) or elsewhere (its *gate*, asked of
//! the database). In an ordered group, a message whose key is in trouble is *held*: it joins the key's lane, the one
//! row that stands for all of the key's unresolved messages, when its range is settled.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;

/// What the database says about a key, from the point of view of one range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    /// The key has a lane.
    pub(crate) laned: bool,
    /// A lower range of another owner holds an unfinished message of the key.
    pub(crate) busy: bool,
}

/// A message to be admitted.
pub(crate) struct Entry<S> {
    pub(crate) key: Option<Bytes>,
    pub(crate) id: i64,
    /// The low end of its range, which names the range.
    pub(crate) low: i64,
    pub(crate) gate: Gate,
    pub(crate) slot: S,
}

/// The chains of one group. `S` names a message to its runner. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Keys<S> {
    ordered: bool,
    chains: HashMap<Bytes, Chain<S>>,
    lanes: HashMap<Bytes, Lane>,
    ready: VecDeque<S>,
    /// Counts settlements that changed lanes.
    epoch: u64,
    /// Questions under way, by the epoch of their start.
    asking: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct Chain<S> {
    /// The one that may run, with its id.
    running: Option<(i64, S)>,
    waiting: BTreeMap<i64, Waiting<S>>,
    /// What waits goes to a lane, so that its range can end.
    hold: bool,
}

#[derive(Debug)]
struct Waiting<S> {
    slot: S,
    low: i64,
    gate: Gate,
    /// The epoch in which the gate's question was sent.
    asked: u64,
}

/// A key's trouble in this process. Until its ranges are settled no database knows of it, and an answer to a question
/// sent before that does not either.
#[derive(Debug, Default)]
struct Lane {
    unsettled: usize,
    settled_at: u64,
}

impl Lane {
    fn is_known_only_here(&self, asked: u64) -> bool {
        self.unsettled > 0 || asked < self.settled_at
    }
}

impl<S: Clone> Keys<S> {
    pub(crate) fn new(ordered: bool) -> Self {
        Self {
            ordered,
            chains: HashMap::new(),
            lanes: HashMap::new(),
            ready: VecDeque::new(),
            epoch: 0,
            asking: BTreeMap::new(),
        }
    }

    /// Before a gate's question is sent; the answer comes with this number.
    pub(crate) fn ask(&mut self) -> u64 {
        *self.asking.entry(self.epoch).or_default() += 1;
        self.epoch
    }

    /// The question with this number has its answer, or never will.
    pub(crate) fn asked(&mut self, number: u64) {
        if let Some(count) = self.asking.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.asking.remove(&number);
            }
        }
    }

    /// Lines up messages whose gates were asked with this number; answers those that are held.
    pub(crate) fn admit(&mut self, number: u64, entries: impl IntoIterator<Item = Entry<S>>) -> Vec<S> {
        let mut held = Vec::new();
        for Entry { key, id, low, gate, slot } in entries {
            let Some(key) = key else {
                self.ready.push_back(slot);
                continue;
            };
            let chain = self.chains.entry(key.clone()).or_default();
            chain.waiting.insert(id, Waiting { slot, low, gate, asked: number });
            self.advance(&key, &mut held);
        }
        held
    }

    /// The next message that may start.
    pub(crate) fn next(&mut self) -> Option<S> {
        self.ready.pop_front()
    }

    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The message that ran has an outcome, `clean` when nothing is left to do; answers those that are held.
    pub(crate) fn finished(&mut self, key: &Bytes, id: i64, clean: bool) -> Vec<S> {
        let mut held = Vec::new();
        let is_running = |chain: &&mut Chain<S>| chain.running.as_ref().is_some_and(|(running, _)| *running == id);
        let Some(chain) = self.chains.get_mut(key).filter(is_running) else {
            return held;
        };
        chain.running = None;
        if !clean && self.ordered {
            self.lanes.entry(key.clone()).or_default().unsettled += 1;
        }
        self.advance(key, &mut held);
        held
    }

    /// A range was settled whose messages of these keys, one element a message, were in trouble or held.
    pub(crate) fn settled(&mut self, keys: impl IntoIterator<Item = Bytes>) {
        let mut changed = false;
        for key in keys {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.unsettled = lane.unsettled.saturating_sub(1);
                lane.settled_at = self.epoch + 1;
                changed = true;
            }
        }
        if changed {
            self.epoch += 1;
            self.prune();
        }
    }

    /// Lanes that every answer to come will know of are the database's business alone.
    fn prune(&mut self) {
        let asking = self.asking.keys().next().copied().unwrap_or(self.epoch);
        let waiting = self.chains.values().flat_map(|chain| chain.waiting.values()).map(|waiting| waiting.asked).min();
        let oldest = waiting.map_or(asking, |waiting| waiting.min(asking));
        self.lanes.retain(|_, lane| lane.is_known_only_here(oldest));
    }

    /// The (key, low) pairs that wait for another owner.
    pub(crate) fn busy(&self) -> Vec<(Bytes, i64)> {
        let front = |(key, chain): (&Bytes, &Chain<S>)| {
            let front = chain.waiting.values().next()?;
            (chain.running.is_none() && front.gate.busy).then(|| (key.clone(), front.low))
        };
        self.chains.iter().filter_map(front).collect()
    }

    /// Newer answers for keys that were busy; answers those that are held.
    pub(crate) fn answered(&mut self, number: u64, gates: Vec<(Bytes, i64, Gate)>) -> Vec<S> {
        let mut held = Vec::new();
        for (key, low, gate) in gates {
            if let Some(chain) = self.chains.get_mut(&key) {
                for waiting in chain.waiting.values_mut().filter(|waiting| waiting.low == low && waiting.gate.busy) {
                    waiting.gate.busy = gate.busy;
                    waiting.gate.laned |= gate.laned;
                    waiting.asked = number;
                }
                self.advance(&key, &mut held);
            }
        }
        held
    }

    /// Messages belong to somebody else now. What waits behind them has to be asked about again.
    pub(crate) fn lose(&mut self, is_lost: impl Fn(&S) -> bool) {
        for chain in self.chains.values_mut() {
            let before = chain.waiting.len();
            chain.waiting.retain(|_, waiting| !is_lost(&waiting.slot));
            let lost = before - chain.waiting.len();
            let was_running = chain.running.as_ref().is_some_and(|(_, slot)| is_lost(slot));
            if was_running {
                chain.running = None;
            }
            if lost > 0 || was_running {
                chain.waiting.values_mut().for_each(|waiting| waiting.gate.busy = true);
            }
        }
        self.chains.retain(|_, chain| chain.running.is_some() || !chain.waiting.is_empty());
    }

    /// Lets a range end whose last messages wait for their keys: they go to lanes. Answers those that are held.
    pub(crate) fn relieve(&mut self, low: i64) -> Vec<S> {
        let mut held = Vec::new();
        if !self.ordered {
            return held;
        }
        let of_range = |chain: &Chain<S>| chain.waiting.values().any(|waiting| waiting.low == low);
        let keys: Vec<_> =
            self.chains.iter().filter(|(_, chain)| of_range(chain)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(chain) = self.chains.get_mut(&key) {
                chain.hold = true;
            }
            self.advance(&key, &mut held);
        }
        held
    }

    fn advance(&mut self, key: &Bytes, held: &mut Vec<S>) {
        let Some(chain) = self.chains.get_mut(key) else { return };
        while chain.running.is_none() {
            let Some(front) = chain.waiting.first_entry() else {
                self.chains.remove(key);
                return;
            };
            if front.get().gate.busy {
                return;
            }
            let (id, waiting) = front.remove_entry();
            let known_here = self.lanes.get(key).is_some_and(|lane| lane.is_known_only_here(waiting.asked));
            if self.ordered && (chain.hold || waiting.gate.laned || known_here) {
                self.lanes.entry(key.clone()).or_default().unsettled += 1;
                held.push(waiting.slot);
            } else {
                chain.running = Some((id, waiting.slot.clone()));
                self.ready.push_back(waiting.slot);
            }
        }
    }
}

impl<S> Default for Chain<S> {
    fn default() -> Self {
        Self { running: None, waiting: BTreeMap::new(), hold: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [i64; 0] = [];
    const FREE: Gate = Gate { laned: false, busy: false };
    const BUSY: Gate = Gate { laned: false, busy: true };
    const LANED: Gate = Gate { laned: true, busy: false };

    fn key(name: &'static str) -> Bytes {
        Bytes::from_static(name.as_bytes())
    }

    fn entry(name: &'static str, low: i64, id: i64, gate: Gate) -> Entry<i64> {
        Entry { key: Some(key(name)), id, low, gate, slot: id }
    }

    fn admitted(keys: &mut Keys<i64>, entries: Vec<Entry<i64>>) -> Vec<i64> {
        let number = keys.ask();
        let held = keys.admit(number, entries);
        keys.asked(number);
        held
    }

    fn started(keys: &mut Keys<i64>) -> Vec<i64> {
        std::iter::from_fn(|| keys.next()).collect()
    }

    #[test]
    fn one_message_of_a_key_runs_at_a_time_and_in_order() {
        let mut keys = Keys::new(true);
        let held = admitted(
            &mut keys,
            vec![entry("a", 0, 1, FREE), entry("b", 0, 2, FREE), entry("a", 0, 3, FREE), entry("a", 0, 4, FREE)],
        );
        assert_eq!((held, started(&mut keys)), (vec![], vec![1, 2]));
        keys.finished(&key("a"), 1, true);
        assert_eq!(started(&mut keys), [3]);
        admitted(&mut keys, vec![entry("a", 10, 11, FREE)]);
        assert_eq!(started(&mut keys), NONE);
        keys.finished(&key("a"), 3, true);
        keys.finished(&key("a"), 11, true);
        assert_eq!(started(&mut keys), [4], "an outcome of what does not run starts nothing");
    }

    #[test]
    fn trouble_holds_the_rest_of_the_key_until_the_database_knows_of_it() {
        let mut keys = Keys::new(true);
        admitted(&mut keys, vec![entry("a", 0, 1, FREE), entry("a", 0, 2, FREE)]);
        // Asked before the settlement, answered after it.
        let early = keys.ask();
        assert_eq!(started(&mut keys), [1]);
        assert_eq!(keys.finished(&key("a"), 1, false), [2]);
        assert_eq!(admitted(&mut keys, vec![entry("a", 10, 11, FREE)]), [11]);
        keys.settled([key("a"), key("a")]);
        keys.settled([key("a")]);
        assert_eq!(keys.admit(early, vec![entry("a", 20, 21, FREE)]), [21]);
        keys.asked(early);
        keys.settled([key("a")]);
        assert_eq!(admitted(&mut keys, vec![entry("a", 30, 31, LANED)]), [31]);
        keys.settled([key("a")]);
        assert_eq!(admitted(&mut keys, vec![entry("a", 40, 41, FREE)]), NONE);
        assert_eq!(started(&mut keys), [41]);
        assert!(keys.lanes.is_empty(), "nothing is remembered that the database knows: {:?}", keys.lanes);
    }

    #[test]
    fn what_another_owner_holds_is_waited_for_and_never_held() {
        let mut keys = Keys::new(true);
        let busy_and_laned = Gate { laned: true, busy: true };
        assert_eq!(admitted(&mut keys, vec![entry("a", 5, 6, busy_and_laned), entry("b", 5, 7, BUSY)]), NONE);
        assert_eq!(started(&mut keys), NONE);
        let mut asked = keys.busy();
        asked.sort();
        assert_eq!(asked, [(key("a"), 5), (key("b"), 5)]);
        let number = keys.ask();
        assert_eq!(keys.answered(number, vec![(key("a"), 5, LANED), (key("b"), 5, FREE)]), [6]);
        keys.asked(number);
        assert_eq!(started(&mut keys), [7]);
    }

    #[test]
    fn a_reclaimed_lower_range_goes_first() {
        let mut keys = Keys::new(true);
        admitted(&mut keys, vec![entry("a", 10, 11, BUSY)]);
        admitted(&mut keys, vec![entry("a", 0, 1, FREE)]);
        assert_eq!(started(&mut keys), [1]);
        assert_eq!(keys.busy(), [], "the lower one is known here");
        keys.finished(&key("a"), 1, true);
        assert_eq!(keys.busy(), [(key("a"), 10)]);
    }

    #[test]
    fn a_lost_range_makes_its_keys_busy() {
        let mut keys = Keys::new(true);
        admitted(&mut keys, vec![entry("a", 0, 1, FREE), entry("b", 0, 2, FREE)]);
        admitted(&mut keys, vec![entry("a", 10, 11, FREE), entry("c", 10, 12, FREE)]);
        assert_eq!(started(&mut keys), [1, 2, 12]);
        keys.lose(|id| *id < 10);
        assert_eq!(started(&mut keys), NONE);
        assert_eq!(keys.busy(), [(key("a"), 10)]);
        assert_eq!(keys.finished(&key("a"), 1, true), [0; 0], "too late");
        let number = keys.ask();
        keys.answered(number, vec![(key("a"), 10, FREE)]);
        assert_eq!(started(&mut keys), [11]);
    }

    #[test]
    fn a_hot_key_goes_to_a_lane_when_its_range_is_to_end() {
        let mut keys = Keys::new(true);
        let range = |low| (low + 1..low + 5).map(|id| entry("hot", low, id, FREE)).collect::<Vec<_>>();
        admitted(&mut keys, range(0));
        admitted(&mut keys, range(10));
        assert_eq!(started(&mut keys), [1]);
        assert_eq!(keys.relieve(0), [0; 0], "one is running");
        assert_eq!(keys.finished(&key("hot"), 1, true), [2, 3, 4, 11, 12, 13, 14]);
        assert_eq!(started(&mut keys), NONE);
    }

    #[test]
    fn in_an_exclusive_group_trouble_holds_nothing() {
        let mut keys = Keys::new(false);
        admitted(&mut keys, vec![entry("a", 0, 1, FREE), entry("a", 0, 2, FREE)]);
        assert_eq!(started(&mut keys), [1]);
        assert_eq!(keys.finished(&key("a"), 1, false), [0; 0]);
        assert_eq!(started(&mut keys), [2]);
    }
}
