//! Concurrent single produces share inserts: what arrives while inserts are under way goes with the next one.
//! There is no timer, so a lone call is sent at once.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::fold::Folding;
use crate::backend::{KEY_HELD, ProduceWithParams, ProducedRow};
use crate::error::{Error, Kind, Recovery};
use crate::identity::{MessageId, StreamId};
use crate::message::{NewMessage, ProduceItem};
use crate::store::Store;

/// Inserts under way at once: while one waits for the disk, the next is being filled and sent.
const INSERTS: usize = 2;
const LARGEST_GROUP: usize = 1000;
const LARGEST_GROUP_BYTES: usize = 8 * 1024 * 1024;
/// How long a group of keyed messages waits for a transaction that holds one of the keys; then each message of it, to
/// find the one; then that one, by itself.
const GROUP_PATIENCE: Duration = Duration::from_millis(100);
const SINGLE_PATIENCE: Duration = Duration::from_millis(10);
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Messages that wait for a key at once, each with a connection of the user's pool.
const WAITING: usize = 2;

type Answer<T> = oneshot::Sender<Result<T, Error>>;
type Group<I> = (Vec<<I as Insert>::Item>, Vec<Answer<<I as Insert>::Row>>);
type Wake = dyn Fn(&[ProducedRow]) + Send + Sync;

/// What a group of messages is stored by.
pub(crate) trait Insert: Send + Sync + 'static {
    /// A message.
    type Item: Send + 'static;
    /// What became of it.
    type Row: Send + 'static;

    /// Bytes that go over the wire, nearly.
    fn size(item: &Self::Item) -> usize;

    /// Stores messages, and answers each.
    fn insert(&self, items: Vec<Self::Item>, answers: Vec<Answer<Self::Row>>) -> impl Future<Output = ()> + Send;
}

/// Where messages go, and who is told.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) store: Store,
    pub(crate) stream: StreamId,
    pub(crate) version: u32,
    pub(crate) codec: i16,
}

/// The queue of one stream and version.
pub(crate) struct Grouping<I: Insert> {
    insert: I,
    queue: Mutex<Queue<I>>,
}

struct Queue<I: Insert> {
    items: Vec<I::Item>,
    answers: Vec<Answer<I::Row>>,
    bytes: usize,
    inserts: usize,
}

impl<I: Insert> Grouping<I> {
    pub(crate) fn new(insert: I) -> Arc<Self> {
        let queue = Queue { items: Vec::new(), answers: Vec::new(), bytes: 0, inserts: 0 };
        Arc::new(Self { insert, queue: Mutex::new(queue) })
    }

    /// Appends `item`; durable when it returns. A dropped call's message may still be appended.
    pub(crate) async fn produce(self: &Arc<Self>, item: I::Item) -> Result<I::Row, Error> {
        let (answer, answered) = oneshot::channel();
        let first = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.bytes += I::size(&item);
            queue.items.push(item);
            queue.answers.push(answer);
            let free = queue.inserts < INSERTS;
            queue.inserts += usize::from(free);
            free
        };
        if first {
            let grouping = Arc::clone(self);
            tokio::spawn(async move { grouping.drain().await });
        }
        answered.await.unwrap_or_else(|_| {
            Err(Error::new(
                Kind::Shutdown,
                "SQLS-0212",
                "the runtime stopped before the message was known to be stored",
            )
            .ambiguous())
        })
    }

    async fn drain(&self) {
        loop {
            // Callers that were just answered, or are about to call, come first: their messages share this insert.
            tokio::task::yield_now().await;
            let Some((items, answers)) = self.next() else { return };
            self.insert.insert(items, answers).await;
        }
    }

    /// The next group; gives the insert's place back when there is none.
    fn next(&self) -> Option<Group<I>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.items.is_empty() {
            queue.inserts -= 1;
            return None;
        }
        if queue.items.len() <= LARGEST_GROUP && queue.bytes <= LARGEST_GROUP_BYTES {
            queue.bytes = 0;
            return Some((std::mem::take(&mut queue.items), std::mem::take(&mut queue.answers)));
        }
        let mut size = 0;
        let fits = queue.items.iter().take(LARGEST_GROUP).take_while(|item| {
            size += I::size(item);
            size <= LARGEST_GROUP_BYTES
        });
        let count = fits.count().max(1);
        let items: Vec<_> = queue.items.drain(..count).collect();
        let answers = queue.answers.drain(..count).collect();
        queue.bytes -= items.iter().map(I::size).sum::<usize>();
        Some((items, answers))
    }
}

/// Messages without options.
pub(crate) struct Plain {
    pub(crate) target: Target,
    /// Called after each insert, with no lock held.
    pub(crate) wake: Box<dyn Fn() + Send + Sync>,
}

impl Plain {
    async fn store(&self, messages: &[NewMessage]) -> Result<Vec<MessageId>, Error> {
        let Target { store, stream, version, codec } = &self.target;
        store.message_produce(*stream, *version, *codec, messages).await
    }
}

impl Insert for Plain {
    type Item = NewMessage;
    type Row = MessageId;

    fn size(item: &NewMessage) -> usize {
        item.size()
    }

    async fn insert(&self, messages: Vec<NewMessage>, answers: Vec<Answer<MessageId>>) {
        match self.store(&messages).await {
            Ok(ids) => {
                (self.wake)();
                for (answer, id) in answers.into_iter().zip(ids) {
                    // The caller may have been dropped; its message is stored all the same.
                    let _ = answer.send(Ok(id));
                }
            }
            Err(err) if err.recovery() == Recovery::Permanent && messages.len() > 1 => {
                // One message must not fail its neighbours.
                for (message, answer) in messages.into_iter().zip(answers) {
                    let result = self.store(std::slice::from_ref(&message)).await;
                    let _ = answer.send(result.map(|ids| ids[0]));
                }
                (self.wake)();
            }
            Err(err) => {
                for answer in answers {
                    let _ = answer.send(Err(err.share()));
                }
            }
        }
    }
}

/// Messages with idempotency keys or delays.
#[derive(Clone)]
pub(crate) struct WithOptions {
    target: Target,
    /// Called after each insert with what became of the messages, with no lock held.
    wake: Arc<Wake>,
    waiting: Arc<Semaphore>,
}

impl WithOptions {
    pub(crate) fn new(target: Target, wake: impl Fn(&[ProducedRow]) + Send + Sync + 'static) -> Self {
        Self { target, wake: Arc::new(wake), waiting: Arc::new(Semaphore::new(WAITING)) }
    }

    /// Stores messages by as few statements as their keys allow.
    pub(crate) async fn store(&self, items: &[ProduceItem], patience: Duration) -> Result<Vec<ProducedRow>, Error> {
        let mut folding = Folding::new(items);
        let mut sent = false;
        while let Some(messages) = folding.next() {
            let params = ProduceWithParams {
                stream: self.target.stream,
                version: self.target.version,
                codec: self.target.codec,
                messages: &messages,
                patience: Some(patience),
                now: None,
            };
            let rows = self.target.store.message_produce_with(&params).await;
            folding.answer(rows.map_err(|err| if sent { err.ambiguous() } else { err })?);
            sent = true;
        }
        let rows = folding.finish();
        (self.wake)(&rows);
        Ok(rows)
    }

    /// Each message by itself, so that one that can't be stored, or has to wait, does not hold up its neighbours.
    async fn one_by_one(&self, items: Vec<ProduceItem>, answers: Vec<Answer<ProducedRow>>) {
        for (item, answer) in items.into_iter().zip(answers) {
            match self.one(&item, SINGLE_PATIENCE).await {
                Err(err) if err.code() == KEY_HELD => self.wait(item, answer),
                result => {
                    let _ = answer.send(result);
                }
            }
        }
    }

    fn wait(&self, item: ProduceItem, answer: Answer<ProducedRow>) {
        let this = self.clone();
        tokio::spawn(async move {
            let _turn = this.waiting.acquire().await;
            let _ = answer.send(this.one(&item, PATIENCE).await);
        });
    }

    async fn one(&self, item: &ProduceItem, patience: Duration) -> Result<ProducedRow, Error> {
        let mut rows = self.store(std::slice::from_ref(item), patience).await?;
        rows.pop().ok_or_else(no_answer)
    }
}

pub(crate) fn no_answer() -> Error {
    Error::new(Kind::Database, "SQLS-0197", "the insert answered no id")
}

impl Insert for WithOptions {
    type Item = ProduceItem;
    type Row = ProducedRow;

    fn size(item: &ProduceItem) -> usize {
        item.message.size()
    }

    async fn insert(&self, items: Vec<ProduceItem>, answers: Vec<Answer<ProducedRow>>) {
        match self.store(&items, GROUP_PATIENCE).await {
            Ok(rows) => {
                for (answer, row) in answers.into_iter().zip(rows) {
                    // The caller may have been dropped; its message is stored all the same.
                    let _ = answer.send(Ok(row));
                }
            }
            Err(err) if err.outcome_known() && (err.code() == KEY_HELD || err.recovery() == Recovery::Permanent) => {
                self.one_by_one(items, answers).await;
            }
            Err(err) => {
                for answer in answers {
                    let _ = answer.send(Err(err.share()));
                }
            }
        }
    }
}
