//! The network before the server, in the test's hands.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// They get through.
    Open,
    /// They wait; nobody is told.
    Silent,
    /// Connections end, new ones at once.
    Cut,
}

/// Carries connections to a server until it is dropped.
pub struct Network {
    port: u16,
    state: watch::Sender<State>,
    server: watch::Sender<u16>,
    accepting: JoinHandle<()>,
}

impl Network {
    /// To the server at a port of this machine.
    pub async fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let (state, server) = (watch::Sender::new(State::Open), watch::Sender::new(server));
        let (states, servers) = (state.subscribe(), server.subscribe());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, *servers.borrow(), states.clone()));
            }
        });
        Self { port, state, server, accepting }
    }

    /// The port at which the server seems to be.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Nothing passes from here on, and connections stay.
    pub fn fall_silent(&self) {
        self.state.send_replace(State::Silent);
    }

    /// Connections end, and new ones as soon as they are made.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// Everything passes again.
    pub fn mend(&self) {
        self.state.send_replace(State::Open);
    }

    /// New connections lead to another server.
    pub fn lead_to(&self, server: u16) {
        self.server.send_replace(server);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn carry(client: TcpStream, server: u16, states: watch::Receiver<State>) {
    if *states.borrow() == State::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    // Small exchanges should not wait for each other.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut cutting = states.clone();
    tokio::select! {
        _ = cutting.wait_for(|state| *state == State::Cut) => {}
        () = pass(from_client, to_server, states.clone()) => {}
        () = pass(from_server, to_client, states) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut states: watch::Receiver<State>) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if states.wait_for(|state| *state != State::Silent).await.is_err()
            || to.write_all(&bytes[..length]).await.is_err()
        {
            return;
        }
    }
}
