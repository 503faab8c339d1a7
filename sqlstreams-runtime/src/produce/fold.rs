//! Messages of one call that share an idempotency key: only the first of them is sent, and the others are answered by it.
//! One statement would store it once and call each of them new.

use std::borrow::Cow;
use std::collections::HashSet;

use bytes::Bytes;

use crate::backend::{FirstRow, ProducedRow};
use crate::identity::Digest;
use crate::message::ProduceItem;

/// What is known of the messages of one call.
pub(crate) struct Folding<'a> {
    items: &'a [ProduceItem],
    rows: Vec<Option<ProducedRow>>,
    sent: Vec<usize>,
}

impl<'a> Folding<'a> {
    pub(crate) fn new(items: &'a [ProduceItem]) -> Self {
        Self { items, rows: vec![None; items.len()], sent: Vec::new() }
    }

    /// What is to be sent next: of the messages without an answer, the first of each key. `None` when all are answered.
    pub(crate) fn next(&mut self) -> Option<Cow<'a, [ProduceItem]>> {
        let mut keys = HashSet::<Digest>::new();
        let open = (0..self.items.len()).filter(|place| self.rows[*place].is_none());
        let first = open.filter(|place| self.items[*place].key.is_none_or(|key| keys.insert(key)));
        self.sent = first.collect();
        if self.sent.is_empty() {
            return None;
        }
        if self.sent.len() == self.items.len() {
            return Some(Cow::Borrowed(self.items));
        }
        Some(Cow::Owned(self.sent.iter().map(|place| self.items[*place].clone()).collect()))
    }

    /// The answers for what was sent. Whoever shares a key with a message that is now known to be the stored one is
    /// answered too; beside a conflict, a later round asks.
    pub(crate) fn answer(&mut self, rows: Vec<ProducedRow>) {
        for (place, row) in std::mem::take(&mut self.sent).into_iter().zip(rows) {
            let item = &self.items[place];
            let first = match &row {
                ProducedRow::Message(id) => Some(FirstRow::Message(*id)),
                ProducedRow::Delayed { id, .. } => Some(FirstRow::Delayed(*id)),
                ProducedRow::Duplicate(first) => Some(*first),
                ProducedRow::Conflict { .. } => None,
            };
            self.rows[place] = Some(row);
            let Some((first, key)) = first.zip(item.key) else { continue };
            for (other, row) in self.items.iter().zip(&mut self.rows).skip(place + 1) {
                if row.is_some() || other.key != Some(key) {
                    continue;
                }
                *row = Some(if other.payload_hash == item.payload_hash {
                    ProducedRow::Duplicate(first)
                } else {
                    let payload = Bytes::copy_from_slice(item.message.payload.as_bytes());
                    ProducedRow::Conflict { first, payload: Some(payload) }
                });
            }
        }
    }

    /// All answers, in the order of the messages.
    pub(crate) fn finish(self) -> Vec<ProducedRow> {
        self.rows.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::identity::MessageId;
    use crate::message::{Deliver, NewMessage};

    fn item(key: Option<u8>, payload: &str) -> ProduceItem {
        let message = NewMessage { payload: payload.to_owned(), routing_key: None, message_key: None, headers: None };
        let payload_hash = super::super::payload::hash(payload);
        let key = key.map(|key| Digest([key; 16]));
        ProduceItem { message, key, payload_hash, deliver: Deliver::Now, keep: Duration::ZERO }
    }

    fn message(id: i64) -> ProducedRow {
        ProducedRow::Message(MessageId(id))
    }

    #[test]
    fn the_first_of_a_key_wins_and_the_others_are_duplicates_or_conflicts() {
        let items = [item(Some(1), "1"), item(None, "1"), item(Some(1), "1"), item(None, "1"), item(Some(1), "2")];
        let mut folding = Folding::new(&items);
        assert_eq!(folding.next().map(|sent| sent.len()), Some(3), "the plain ones and the first of the key");
        folding.answer(vec![message(7), message(8), message(9)]);
        assert!(folding.next().is_none());
        let first = FirstRow::Message(MessageId(7));
        let conflict = ProducedRow::Conflict { first, payload: Some(Bytes::from_static(b"1")) };
        assert_eq!(folding.finish(), [message(7), message(8), ProducedRow::Duplicate(first), message(9), conflict]);
    }

    #[test]
    fn beside_a_conflict_the_next_of_the_key_asks_for_itself() {
        let items = [item(Some(1), "1"), item(Some(1), "2"), item(Some(1), "2")];
        let mut folding = Folding::new(&items);
        let first = FirstRow::Message(MessageId(3));
        let conflict = ProducedRow::Conflict { first, payload: None };
        assert_eq!(folding.next().map(|sent| sent.len()), Some(1));
        folding.answer(vec![conflict.clone()]);
        assert_eq!(folding.next().map(|sent| sent.len()), Some(1));
        folding.answer(vec![ProducedRow::Duplicate(first)]);
        assert!(folding.next().is_none());
        let duplicate = ProducedRow::Duplicate(first);
        assert_eq!(folding.finish(), [conflict, duplicate.clone(), duplicate]);
    }

    #[test]
    fn nothing_is_copied_when_no_key_stands_twice() {
        let items = [item(Some(1), "1"), item(Some(2), "1"), item(None, "1")];
        assert!(matches!(Folding::new(&items).next(), Some(Cow::Borrowed(sent)) if sent.len() == 3));
    }
}
