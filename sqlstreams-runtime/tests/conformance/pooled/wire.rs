//! What a client says to its server, read on the way.

use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A message of a client, and whether its server was in a transaction then.
#[derive(Clone, Debug)]
pub struct Said {
    pub kind: u8,
    pub in_transaction: bool,
    /// The beginning: a statement's name, a simple query's text.
    pub text: String,
}

/// The first packet of a connection, which goes on when the test has answered.
pub type Start = (String, oneshot::Sender<()>);

/// Carries connections until it is dropped.
pub struct Wire {
    port: u16,
    said: Arc<Mutex<Vec<Said>>>,
    accepting: JoinHandle<()>,
}

impl Wire {
    /// To the server of that URL.
    pub async fn start(url: &str) -> Self {
        Self::asking(url, None).await
    }

    /// As [`Wire::start`]; the test hears of each connection's start.
    pub async fn asking(url: &str, starts: Option<mpsc::UnboundedSender<Start>>) -> Self {
        let options = PgConnectOptions::from_str(url).expect("a URL of Postgres");
        let address = (options.get_host().to_owned(), options.get_port());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let said = Arc::new(Mutex::new(Vec::new()));
        let all = said.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, address.clone(), all.clone(), starts.clone()));
            }
        });
        Self { port, said, accepting }
    }

    /// The URL of the same database over this wire.
    pub fn url(&self, url: &str) -> String {
        let options = PgConnectOptions::from_str(url).expect("a URL of Postgres");
        let database = options.get_database().expect("the URL names a database");
        format!("postgres://{}@127.0.0.1:{}/{database}?sslmode=disable", options.get_username(), self.port)
    }

    /// What was said so far.
    pub fn said(&self) -> Vec<Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(
    client: TcpStream,
    address: (String, u16),
    said: Arc<Mutex<Vec<Said>>>,
    starts: Option<mpsc::UnboundedSender<Start>>,
) {
    let Ok(server) = TcpStream::connect(address).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let status = AtomicU8::new(b'I');
    tokio::select! {
        _ = up(from_client, to_server, &status, &said, starts) => {}
        _ = down(from_server, to_client, &status) => {}
    }
}

async fn up(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    status: &AtomicU8,
    said: &Mutex<Vec<Said>>,
    starts: Option<mpsc::UnboundedSender<Start>>,
) -> std::io::Result<()> {
    let start = body(&mut from).await?;
    if let Some(starts) = starts {
        let (answer, answered) = oneshot::channel();
        // A test that has seen enough answers no more.
        let _ = starts.send((String::from_utf8_lossy(&start).into_owned(), answer));
        let _ = answered.await;
    }
    to.write_all(&start).await?;
    loop {
        let kind = from.read_u8().await?;
        let body = body(&mut from).await?;
        let text = body[4..].split(|byte| *byte == 0).next().unwrap_or_default();
        said.lock().unwrap_or_else(PoisonError::into_inner).push(Said {
            kind,
            in_transaction: status.load(Ordering::Acquire) != b'I',
            text: String::from_utf8_lossy(text).into_owned(),
        });
        to.write_all(&[&[kind], &body[..]].concat()).await?;
    }
}

async fn down(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, status: &AtomicU8) -> std::io::Result<()> {
    loop {
        let kind = from.read_u8().await?;
        let body = body(&mut from).await?;
        if kind == b'Z' {
            status.store(body[4], Ordering::Release);
        }
        to.write_all(&[&[kind], &body[..]].concat()).await?;
    }
}

/// A length, which counts itself, and so many bytes.
async fn body(from: &mut OwnedReadHalf) -> std::io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    let mut body = length.to_be_bytes().to_vec();
    body.resize(length as usize, 0);
    from.read_exact(&mut body[4..]).await?;
    Ok(body)
}
