//! A database that is restarted under a running application.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sqlstreams_runtime::Client;
use sqlx::Postgres;
use tokio::task::JoinSet;

use super::{Application, Handled, Numbers, acknowledged, blocking, settled};
use crate::fence::declared::NoteReaders;
use crate::support::cluster::{Cluster, Mode, Options};

const PRODUCERS: usize = 3;
/// Messages between two restarts.
const STRETCH: usize = 150;

/// Producers that go on through everything, and what was acknowledged to them.
struct Producers {
    tasks: JoinSet<()>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<BTreeSet<u64>>>,
}

impl Producers {
    fn start(application: &Application, numbers: &Numbers) -> Self {
        let (stop, all) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeSet::new())));
        let mut tasks = JoinSet::new();
        for _ in 0..PRODUCERS {
            let (notes, numbers) = (application.notes.clone(), numbers.clone());
            let (stop, all, handled) = (stop.clone(), all.clone(), application.handled.clone());
            tasks.spawn(async move {
                while !stop.load(Ordering::Acquire) {
                    let (n, _) = acknowledged(&notes, &numbers).await;
                    all.lock().expect("no producer panicked").insert(n);
                    // Not faster than the consumer, so that a restart meets both.
                    handled.all(&[n]).await;
                }
            });
        }
        Self { tasks, stop, acknowledged: all }
    }

    fn so_far(&self) -> BTreeSet<u64> {
        self.acknowledged.lock().expect("no producer panicked").clone()
    }

    async fn stop(mut self) -> BTreeSet<u64> {
        self.stop.store(true, Ordering::Release);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no producer panicked");
        }
        self.so_far()
    }
}

fn again(handled: &Handled) -> BTreeSet<u64> {
    handled.times().into_iter().filter(|(_, times)| *times > 1).map(|(n, _)| n).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_database_in_the_middle_of_a_run_loses_nothing_and_needs_no_restart_of_the_application() {
    let cluster = Arc::new(Cluster::start(Options::default()));
    let client = Client::<Postgres>::connect(&cluster.url("postgres")).await.expect("the server takes connections");
    let application = Application::start(client).await;
    let producers = Producers::start(&application, &Numbers::default());
    application.handled.at_least(STRETCH).await;

    blocking(&cluster, |cluster| cluster.stop(Mode::Fast)).await;
    blocking(&cluster, Cluster::start_again).await;
    application.handled.at_least(application.handled.count() + STRETCH).await;
    // An orderly stop keeps what was claimed, and a range that was handled meanwhile is settled afterwards.
    assert_eq!(again(&application.handled), BTreeSet::new());

    blocking(&cluster, |cluster| cluster.stop(Mode::Immediate)).await;
    let before = producers.so_far();
    blocking(&cluster, Cluster::start_again).await;
    application.handled.at_least(application.handled.count() + STRETCH).await;

    let produced = producers.stop().await;
    application.handled.all(&produced.iter().copied().collect::<Vec<_>>()).await;
    settled::<NoteReaders>(&application.client).await;
    // Only what was claimed when the server went may come again, and once.
    let again = again(&application.handled);
    assert!(again.is_subset(&before), "handled again: {again:?}");
    assert!(again.len() <= STRETCH, "handled again: {again:?}");
    assert!(application.handled.times().values().all(|times| *times <= 2));
    application.end().await;
}
