//! Streams and their payload versions: `stream_register`.

use sqlstreams_runtime::backend::{StartParams, StreamParams};
use sqlstreams_runtime::identity::StreamId;

use crate::harness::{Installation, group_params, ids, on_both, stream_params};

on_both! {
    register_gives_a_new_stream_its_tables,
    register_again_answers_the_same_stream,
    register_answers_what_was_stored_first,
    register_stores_each_version_once,
    register_keeps_streams_apart,
    register_from_eight_processes_makes_one_stream,
    register_of_many_streams_side_by_side_mixes_nothing,
    register_whose_future_is_dropped_leaves_nothing_half_done,
}

async fn register_gives_a_new_stream_its_tables(installation: &Installation) {
    let params = StreamParams { partition_size: 100, ..stream_params("orders.placed") };
    let row = installation.backend.stream_register(&params).await.expect("a stream");
    assert_eq!((row.message_key, row.partition_size, row.codec), (None, 100, 0));
    assert_eq!(row.shape, params.shape);
    installation.group(row.id, "readers").await;
    let produced = installation.produce(row.id, 3).await;
    assert_eq!(ids(&installation.read(row.id, 0, i64::MAX).await), produced.iter().map(|id| id.0).collect::<Vec<_>>());
    assert_eq!(produced[0].0, 1, "ids begin with 1: before it is the beginning");
}

async fn register_again_answers_the_same_stream(installation: &Installation) {
    let params = stream_params("events");
    let first = installation.backend.stream_register(&params).await.expect("a stream");
    installation.produce(first.id, 3).await;
    let other = installation.another().await;
    for backend in [&installation.backend, &other] {
        let again = backend.stream_register(&params).await.expect("the stream");
        assert_eq!((again.id, again.shape, again.codec), (first.id, params.shape.clone(), 0));
    }
    assert_eq!(installation.read(first.id, 0, i64::MAX).await.len(), 3, "its messages are still there");
    assert_eq!(installation.count(&installation.table("stream_config")).await, 1);
    assert_eq!(installation.count(&installation.table("stream_version_config")).await, 1);
}

/// The caller compares, and refuses its own declaration with the difference.
async fn register_answers_what_was_stored_first(installation: &Installation) {
    let stored =
        StreamParams { message_key: Some("id".to_owned()), partition_size: 1000, codec: 0, ..stream_params("events") };
    let first = installation.backend.stream_register(&stored).await.expect("a stream");
    let declared = StreamParams {
        message_key: Some("other".to_owned()),
        partition_size: 5,
        codec: 1,
        shape: r#"{"id":"text"}"#.to_owned(),
        shape_hash: [9; 32],
        json_schema: "{}".to_owned(),
        ..stored.clone()
    };
    let row = installation.backend.stream_register(&declared).await.expect("the stored stream");
    assert_eq!((row.id, row.message_key.as_deref()), (first.id, Some("id")));
    assert_eq!((row.partition_size, row.codec, row.shape), (1000, 0, stored.shape));
    let versions = installation.table("stream_version_config");
    let stored = installation.texts(&format!("select shape || ' ' || json_schema from {versions}")).await;
    assert_eq!(stored, [r#"{"id":"integer"} {"type": "object"}"#], "nothing was overwritten");
}

async fn register_stores_each_version_once(installation: &Installation) {
    let version = |number: u32| StreamParams {
        schema_version: number,
        shape: format!(r#"{{"v{number}":"integer"}}"#),
        ..stream_params("events")
    };
    let mut streams = Vec::new();
    for number in [2, 1, 3, 2] {
        let row = installation.backend.stream_register(&version(number)).await.expect("a version");
        assert_eq!(row.shape, version(number).shape);
        streams.push(row.id);
    }
    assert!(streams.iter().all(|id| *id == streams[0]));
    let versions = installation.table("stream_version_config");
    let versions = installation.texts(&format!("select schema_version || shape from {versions} order by 1")).await;
    assert_eq!(versions, [r#"1{"v1":"integer"}"#, r#"2{"v2":"integer"}"#, r#"3{"v3":"integer"}"#]);
}

async fn register_keeps_streams_apart(installation: &Installation) {
    let (first, second) = (installation.stream("first").await, installation.stream("second").await);
    assert_ne!(first, second);
    installation.produce(first, 5).await;
    installation.produce(second, 2).await;
    assert_eq!(ids(&installation.read(first, 0, i64::MAX).await), [1, 2, 3, 4, 5]);
    assert_eq!(ids(&installation.read(second, 0, i64::MAX).await), [1, 2]);
}

async fn register_from_eight_processes_makes_one_stream(installation: &Installation) {
    let mut processes = tokio::task::JoinSet::new();
    for process in 0..8 {
        let backend = installation.another().await;
        // Half of them have another shape for the version: one shape is stored, and everybody gets that.
        let shape = format!(r#"{{"shape":{}}}"#, process % 2);
        let params = StreamParams { shape, ..stream_params("events") };
        processes.spawn(async move {
            let row = backend.stream_register(&params).await.expect("a stream");
            (row.id, row.shape)
        });
    }
    let rows: Vec<(StreamId, String)> = processes.join_all().await;
    assert!(rows.iter().all(|row| *row == rows[0]), "everybody got the same: {rows:?}");
    assert_eq!(installation.count(&installation.table("stream_config")).await, 1);
    assert_eq!(installation.count(&installation.table("stream_version_config")).await, 1);
    installation.produce(rows[0].0, 1).await;
}

async fn register_of_many_streams_side_by_side_mixes_nothing(installation: &Installation) {
    let mut processes = tokio::task::JoinSet::new();
    for process in 0..4 {
        let backend = installation.another().await;
        processes.spawn(async move {
            let mut found = Vec::new();
            for number in 0..6 {
                // Each process meets the others at every name, in another order.
                let name = format!("events.s{}", (number + process * 2) % 6);
                let id = backend.stream_register(&stream_params(&name)).await.expect("a stream").id;
                let group = group_params(id, "readers");
                backend.group_register(&group).await.expect("a group");
                found.push((name, id));
            }
            found
        });
    }
    let mut found: Vec<(String, StreamId)> = processes.join_all().await.into_iter().flatten().collect();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 6, "one id a name: {found:?}");
    let mut streams: Vec<StreamId> = found.iter().map(|(_, id)| *id).collect();
    streams.sort();
    streams.dedup();
    assert_eq!(streams.len(), 6, "one name an id: {found:?}");
}

/// The registration is dropped at each of its waits in turn.
async fn register_whose_future_is_dropped_leaves_nothing_half_done(installation: &Installation) {
    for waits in 0..12 {
        let name = format!("events.w{waits}");
        let params = stream_params(&name);
        let register = installation.backend.stream_register(&params);
        cut(register, waits).await;
        let row = installation.backend.stream_register(&params).await.expect("the registration can be repeated");
        let mut group = group_params(row.id, "readers");
        group.start = StartParams::Head;
        cut(installation.backend.group_register(&group), waits).await;
        installation.backend.group_register(&group).await.expect("the registration can be repeated");
        assert_eq!(installation.produce(row.id, 1).await[0].0, 1, "{name}");
        assert_eq!(installation.count(&installation.table_of("consumer_group_cursor", row.id)).await, 1, "{name}");
    }
}

/// Polls a future until it has waited so often, then drops it.
async fn cut<T>(future: impl Future<Output = T>, waits: usize) {
    let mut future = std::pin::pin!(future);
    let mut waited = 0;
    std::future::poll_fn(|context| {
        let ready = future.as_mut().poll(context).is_ready();
        waited += 1;
        if ready || waited > waits { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
