//! Concurrent single produces share inserts: what arrives while inserts are under way goes with the next one.
//! There is no timer, so a lone call is sent at once.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::error::{Error, Kind, Recovery};
use crate::identity::{MessageId, StreamId};
use crate::message::NewMessage;
use crate::store::Store;

/// Inserts under way at once: while one waits for the disk, the next is being filled and sent.
const INSERTS: usize = 2;
const LARGEST_GROUP: usize = 1000;
const LARGEST_GROUP_BYTES: usize = 8 * 1024 * 1024;

type Answer = oneshot::Sender<Result<MessageId, Error>>;

/// The queue of one stream and version.
pub(crate) struct Grouping {
    store: Store,
    stream: StreamId,
    version: u32,
    codec: i16,
    queue: Mutex<Queue>,
    /// Called after each insert, with no lock held.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Queue {
    messages: Vec<NewMessage>,
    answers: Vec<Answer>,
    bytes: usize,
    inserts: usize,
}

impl Grouping {
    pub(crate) fn new(
        store: Store,
        stream: StreamId,
        version: u32,
        codec: i16,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { store, stream, version, codec, queue: Mutex::default(), wake: Box::new(wake) })
    }

    /// Appends `message`; durable when it returns. A dropped call's message may still be appended.
    pub(crate) async fn produce(self: &Arc<Self>, message: NewMessage) -> Result<MessageId, Error> {
        let (answer, answered) = oneshot::channel();
        let first = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.bytes += message.size();
            queue.messages.push(message);
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
            let Some((messages, answers)) = self.next() else { return };
            self.insert(messages, answers).await;
        }
    }

    /// The next group; gives the insert's place back when there is none.
    fn next(&self) -> Option<(Vec<NewMessage>, Vec<Answer>)> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.messages.is_empty() {
            queue.inserts -= 1;
            return None;
        }
        if queue.messages.len() <= LARGEST_GROUP && queue.bytes <= LARGEST_GROUP_BYTES {
            queue.bytes = 0;
            return Some((std::mem::take(&mut queue.messages), std::mem::take(&mut queue.answers)));
        }
        let mut size = 0;
        let fits = queue.messages.iter().take(LARGEST_GROUP).take_while(|message| {
            size += message.size();
            size <= LARGEST_GROUP_BYTES
        });
        let count = fits.count().max(1);
        let messages: Vec<_> = queue.messages.drain(..count).collect();
        let answers = queue.answers.drain(..count).collect();
        queue.bytes -= messages.iter().map(NewMessage::size).sum::<usize>();
        Some((messages, answers))
    }

    async fn insert(&self, messages: Vec<NewMessage>, answers: Vec<Answer>) {
        let result = self.store.message_produce(self.stream, self.version, self.codec, &messages).await;
        match result {
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
                    let one = std::slice::from_ref(&message);
                    let result = self.store.message_produce(self.stream, self.version, self.codec, one).await;
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
