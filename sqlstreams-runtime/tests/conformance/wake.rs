//! Hints between processes: `wake_send` and `wake_wait`.

use std::sync::Arc;
use std::time::Duration;

use sqlstreams_runtime::backend::Backend;
use sqlstreams_runtime::identity::StreamId;
use tokio::time::timeout;

use crate::harness::{self, Installation, PATIENCE, message, on_both};

on_both! {
    wait_answers_at_once_when_it_begins_to_listen,
    wait_answers_the_streams_that_another_process_wrote_to,
    wait_ends_when_the_news_comes_later,
    wait_that_was_dropped_loses_nothing,
    wait_in_two_processes_tells_both,
    send_is_no_error_when_nobody_waits,
}

async fn wait(backend: &dyn Backend) -> Vec<StreamId> {
    let news = timeout(PATIENCE, backend.wake_wait()).await.expect("news comes in time");
    let mut news = news.expect("the database can be listened to");
    news.sort();
    news
}

/// Another process produces to a stream and tells of it.
async fn tell(backend: &dyn Backend, streams: &[StreamId]) {
    for stream in streams {
        backend.message_produce(*stream, 1, 0, &[message(0)]).await.expect("a message");
    }
    backend.wake_send(streams).await.expect("others are told");
}

async fn wait_answers_at_once_when_it_begins_to_listen(installation: &Installation) {
    installation.stream("events").await;
    assert_eq!(wait(&*installation.backend).await, [], "any stream may have had news before");
}

async fn wait_answers_the_streams_that_another_process_wrote_to(installation: &Installation) {
    let other = installation.another().await;
    let mut streams = Vec::new();
    for name in ["first", "second", "third"] {
        streams.push(installation.stream(name).await);
    }
    wait(&*installation.backend).await;
    for told in [&streams[..1], &streams[1..2], &streams[..1]] {
        tell(&*other, told).await;
        assert_eq!(wait(&*installation.backend).await, told);
    }
    tell(&*other, &streams[1..]).await;
    let mut heard = Vec::new();
    // SQLite's news are the commits, so they may come one by one.
    while heard.len() < 2 {
        heard.extend(wait(&*installation.backend).await);
        heard.sort();
        heard.dedup();
    }
    assert_eq!(heard, streams[1..]);
}

async fn wait_ends_when_the_news_comes_later(installation: &Installation) {
    let other = installation.another().await;
    let stream = installation.stream("events").await;
    wait(&*installation.backend).await;
    let backend: Arc<dyn Backend> = installation.backend.clone();
    let mut waiting = tokio::spawn(async move { wait(&*backend).await });
    assert!(timeout(Duration::from_millis(100), &mut waiting).await.is_err(), "there is no news");
    tell(&*other, &[stream]).await;
    assert_eq!(waiting.await.expect("no panic"), [stream]);
}

async fn wait_that_was_dropped_loses_nothing(installation: &Installation) {
    let other = installation.another().await;
    let stream = installation.stream("events").await;
    wait(&*installation.backend).await;
    for _ in 0..5 {
        let dropped = timeout(Duration::from_millis(5), installation.backend.wake_wait()).await;
        assert!(dropped.is_err(), "there is no news: {dropped:?}");
        tell(&*other, &[stream]).await;
        assert_eq!(wait(&*installation.backend).await, [stream]);
    }
}

async fn wait_in_two_processes_tells_both(installation: &Installation) {
    let (second, writer) = (installation.another().await, installation.another().await);
    let stream = installation.stream("events").await;
    wait(&*installation.backend).await;
    wait(&*second).await;
    tell(&*writer, &[stream]).await;
    assert_eq!(wait(&*installation.backend).await, [stream]);
    assert_eq!(wait(&*second).await, [stream]);
}

async fn send_is_no_error_when_nobody_waits(installation: &Installation) {
    let stream = installation.stream("events").await;
    for streams in [&[][..], &[stream], &[stream, StreamId(77), stream]] {
        installation.backend.wake_send(streams).await.expect("nobody has to listen");
    }
}

#[tokio::test]
async fn wait_listens_again_after_its_connection_broke() {
    let installation = harness::postgres().await;
    let stream = installation.stream("events").await;
    wait(&*installation.backend).await;
    let listeners = "from pg_stat_activity where datname = current_database() and query ilike 'listen%'";
    assert_eq!(installation.number(&format!("select count(*) {listeners}")).await, 1);
    installation.execute(&format!("select pg_terminate_backend(pid) {listeners}")).await;
    // What is told from here on may be lost; the answer says so, or an error does.
    let broken = timeout(PATIENCE, installation.backend.wake_wait()).await.expect("the break is noticed");
    assert!(broken.is_err() || broken.is_ok_and(|news| news.is_empty()));

    let backend: Arc<dyn Backend> = installation.backend.clone();
    let heard = tokio::spawn(async move {
        loop {
            match backend.wake_wait().await {
                Ok(news) if news.is_empty() => {}
                Ok(news) => return news,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    let deadline = std::time::Instant::now() + PATIENCE;
    while !heard.is_finished() {
        assert!(std::time::Instant::now() < deadline, "nothing is heard any more");
        installation.backend.wake_send(&[stream]).await.expect("others are told");
    }
    assert_eq!(heard.await.expect("no panic"), [stream]);
}

/// On SQLite every commit is its own hint, and a process needs none of its own.
#[tokio::test]
async fn wait_leaves_out_what_this_process_wrote_itself() {
    let installation = harness::sqlite().await;
    let (mine, theirs) = (installation.stream("mine").await, installation.stream("theirs").await);
    let other = installation.another().await;
    wait(&*installation.backend).await;
    installation.produce(mine, 5).await;
    other.message_produce(theirs, 1, 0, &[message(0)]).await.expect("a message");
    assert_eq!(wait(&*installation.backend).await, [theirs]);
}
