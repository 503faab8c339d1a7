//! Patterns as finite automata over the segments of one route.
//!
//! A segment's value matters only as far as the patterns at hand can tell it from another, so the alphabet
//! is their literals and one symbol for every other value. A set of automaton states is a bit mask.

use crate::route::MAX_SEGMENTS;
use crate::text::{Segments, bytes_eq};

/// A set of symbols; bit `OTHER` stands for every value that is no literal of the patterns.
pub(crate) type SymbolSet = u128;
type StateSet = u64;

/// Two patterns of at most `MAX_SEGMENTS` literals each.
const MAX_LITERALS: usize = 2 * MAX_SEGMENTS;
const OTHER: usize = MAX_LITERALS;
const SYMBOLS: usize = MAX_LITERALS + 1;

/// The literals that occur in the patterns at hand.
pub(crate) struct Alphabet<'a> {
    literals: [&'a [u8]; MAX_LITERALS],
    len: usize,
}

impl<'a> Alphabet<'a> {
    pub(crate) const fn new() -> Self {
        Alphabet { literals: [&[]; MAX_LITERALS], len: 0 }
    }

    const fn intern(&mut self, literal: &'a [u8]) -> usize {
        let known = self.index(literal);
        if known != OTHER || self.len == MAX_LITERALS {
            return known;
        }
        self.literals[self.len] = literal;
        self.len += 1;
        self.len - 1
    }

    const fn index(&self, value: &[u8]) -> usize {
        let mut i = 0;
        while i < self.len {
            if self.literals[i].len() == value.len() && bytes_eq(self.literals[i], value) {
                return i;
            }
            i += 1;
        }
        OTHER
    }

    pub(crate) const fn symbol(&self, value: &[u8]) -> SymbolSet {
        1 << self.index(value)
    }

    pub(crate) const fn symbols(&self, values: &[&str]) -> SymbolSet {
        let mut set = 0;
        let mut i = 0;
        while i < values.len() {
            set |= self.symbol(values[i].as_bytes());
            i += 1;
        }
        set
    }

    pub(crate) const fn all(&self) -> SymbolSet {
        ((1 << self.len) - 1) | (1 << OTHER)
    }
}

/// A pattern that passed `check_pattern`. State `i` means that the first `i` of its segments are matched.
pub(crate) struct Automaton {
    /// The states before a `**`.
    many: StateSet,
    /// The states before a `*`.
    any: StateSet,
    /// By symbol, the states before its literal.
    advance: [StateSet; SYMBOLS],
    end: StateSet,
}

impl Automaton {
    pub(crate) const fn new<'a>(pattern: &'a str, alphabet: &mut Alphabet<'a>) -> Self {
        let mut many = 0;
        let mut any = 0;
        let mut advance = [0; SYMBOLS];
        let mut segments = Segments::new(pattern);
        let mut state: StateSet = 1;
        while let Some(segment) = segments.next() {
            if bytes_eq(segment, b"**") {
                // `**.**` means `**`; with one of them, `close` is a single step.
                if many & (state >> 1) != 0 {
                    continue;
                }
                many |= state;
            } else if bytes_eq(segment, b"*") {
                any |= state;
            } else {
                advance[alphabet.intern(segment)] |= state;
            }
            state <<= 1;
        }
        Automaton { many, any, advance, end: state }
    }

    const fn start(&self) -> StateSet {
        self.close(1)
    }

    const fn step(&self, states: StateSet, symbol: usize) -> StateSet {
        let advance = self.any | self.advance[symbol];
        self.close(((states & advance) << 1) | (states & self.many))
    }

    const fn close(&self, states: StateSet) -> StateSet {
        states | ((states & self.many) << 1)
    }

    const fn accepts(&self, states: StateSet) -> bool {
        states & self.end != 0
    }
}

/// Whether some word whose `i`th symbol is of `symbols[i]` is accepted.
pub(crate) const fn can_match(automaton: &Automaton, symbols: &[SymbolSet; MAX_SEGMENTS], len: usize) -> bool {
    let mut states = automaton.start();
    let mut i = 0;
    while i < len {
        let mut reached = 0;
        let mut left = symbols[i];
        while left != 0 {
            reached |= automaton.step(states, left.trailing_zeros() as usize);
            left &= left - 1;
        }
        states = reached;
        i += 1;
    }
    automaton.accepts(states)
}

/// Whether `wide` accepts every word of the route that `narrow` accepts.
///
/// Looks for a counterexample: a run of `narrow`, state by state, with all the states in which `wide` could
/// be after the same word. Of two such cases in one state of `narrow`, the one whose `wide` has a subset of
/// the other's states is the stronger, and the other is dropped.
pub(crate) const fn includes(
    wide: &Automaton,
    narrow: &Automaton,
    symbols: &[SymbolSet; MAX_SEGMENTS],
    len: usize,
) -> bool {
    let mut cases = Cases::new();
    cases.insert_closed(narrow, 1, wide.start());
    let mut i = 0;
    while i < len {
        let mut next = Cases::new();
        let mut at = 0;
        while at < cases.len {
            let (state, states) = cases.items[at];
            next.insert_successors(narrow, state, wide, states, symbols[i]);
            at += 1;
        }
        if next.overflowed {
            return false;
        }
        cases = next;
        i += 1;
    }
    let mut at = 0;
    while at < cases.len {
        let (state, states) = cases.items[at];
        if narrow.accepts(state) && !wide.accepts(states) {
            return false;
        }
        at += 1;
    }
    true
}

const MAX_CASES: usize = 128;

struct Cases {
    items: [(StateSet, StateSet); MAX_CASES],
    len: usize,
    overflowed: bool,
}

impl Cases {
    const fn new() -> Self {
        Cases { items: [(0, 0); MAX_CASES], len: 0, overflowed: false }
    }

    const fn insert_successors(
        &mut self,
        narrow: &Automaton,
        state: StateSet,
        wide: &Automaton,
        states: StateSet,
        symbols: SymbolSet,
    ) {
        let mut left = symbols;
        while left != 0 {
            let symbol = left.trailing_zeros() as usize;
            let reached = wide.step(states, symbol);
            if state & narrow.many != 0 {
                self.insert_closed(narrow, state, reached);
            } else if state & (narrow.any | narrow.advance[symbol]) != 0 {
                self.insert_closed(narrow, state << 1, reached);
            }
            left &= left - 1;
        }
    }

    const fn insert_closed(&mut self, narrow: &Automaton, state: StateSet, states: StateSet) {
        self.insert(state, states);
        if state & narrow.many != 0 {
            self.insert(state << 1, states);
        }
    }

    const fn insert(&mut self, state: StateSet, states: StateSet) {
        let mut kept = 0;
        let mut i = 0;
        while i < self.len {
            let (other_state, other_states) = self.items[i];
            let same = other_state == state;
            if same && other_states & states == other_states {
                return;
            }
            if !(same && states & other_states == states) {
                self.items[kept] = self.items[i];
                kept += 1;
            }
            i += 1;
        }
        self.len = kept;
        if self.len == MAX_CASES {
            self.overflowed = true;
            return;
        }
        self.items[self.len] = (state, states);
        self.len += 1;
    }
}
