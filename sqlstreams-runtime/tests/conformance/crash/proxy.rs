//! The network between the engine and the server, in the test's hands.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::PATIENCE;

/// Carries connections to the server until it is dropped.
pub struct Proxy {
    port: u16,
    held: watch::Sender<bool>,
    cuts: watch::Sender<u64>,
    away: Arc<AtomicBool>,
    refused: Arc<Semaphore>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// To the server of that URL.
    pub async fn start(url: &str) -> Self {
        let options = PgConnectOptions::from_str(url).expect("a URL of Postgres");
        let server = (options.get_host().to_owned(), options.get_port());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let (held, cuts) = (watch::Sender::new(false), watch::Sender::new(0));
        let (holding, cutting) = (held.subscribe(), cuts.subscribe());
        let away = Arc::new(AtomicBool::new(false));
        let refused = Arc::new(Semaphore::new(0));
        let (is_away, refusals) = (away.clone(), refused.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if is_away.load(Ordering::Acquire) {
                    refusals.add_permits(1);
                    continue;
                }
                let mut cutting = cutting.clone();
                cutting.mark_unchanged();
                tokio::spawn(carry(client, server.clone(), holding.clone(), cutting));
            }
        });
        Self { port, held, cuts, away, refused, accepting }
    }

    /// A pool that goes through the proxy to the database of `url`.
    pub async fn pool(&self, url: &str) -> PgPool {
        let options = PgConnectOptions::from_str(url).expect("a URL of Postgres");
        let options = options.host("127.0.0.1").port(self.port);
        let pool = PgPoolOptions::new().test_before_acquire(false).acquire_timeout(PATIENCE);
        pool.connect_with(options).await.expect("the server takes connections")
    }

    /// From here on answers of executed statements stay in the network; those of merely prepared ones pass.
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Cuts every connection, with the answers that are on their way; new ones work.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
        self.held.send_replace(false);
    }

    /// Cuts every connection, and new ones as soon as they are made.
    pub fn go_away(&self) {
        self.away.store(true, Ordering::Release);
        self.cut();
    }

    /// Waits until so many new connections were cut.
    pub async fn refuses(&self, connections: u32) {
        let refused = timeout(PATIENCE, self.refused.acquire_many(connections)).await;
        refused.expect("somebody connects").expect("the semaphore stays open").forget();
    }

    /// New connections work again.
    pub fn come_back(&self) {
        self.away.store(false, Ordering::Release);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn carry(
    client: TcpStream,
    server: (String, u16),
    mut held: watch::Receiver<bool>,
    mut cutting: watch::Receiver<u64>,
) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    // Small exchanges should not wait for each other.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let down = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
            // ParseComplete, with what describes the statement. Every answer begins with a message, small as they are.
            let prepared = bytes[0] == b'1';
            if (!prepared && held.wait_for(|held| !held).await.is_err())
                || to_client.write_all(&bytes[..length]).await.is_err()
            {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        _ = cutting.changed() => {}
        () = down => {}
        _ = copy(&mut from_client, &mut to_server) => {}
    }
}
