//! A proxy whose connections break at a chosen moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to a server, and breaks one on request.
pub(crate) struct Proxy {
    port: u16,
    breaks: Arc<AtomicU8>,
}

/// The moment at which the next used connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// The client's request does not reach the server.
    BeforeRequest = 1,
    /// The server performs the request, and its answer does not reach the client.
    BeforeAnswer = 2,
}

impl Proxy {
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let breaks = Arc::new(AtomicU8::new(0));
        let shared = Arc::clone(&breaks);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
                tokio::spawn(forward(client, server, Arc::clone(&shared)));
            }
        });
        Self { port, breaks }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn break_next(&self, when: Break) {
        self.breaks.store(when as u8, Ordering::SeqCst);
    }

    pub(crate) fn has_broken(&self) -> bool {
        self.breaks.load(Ordering::SeqCst) == 0
    }
}

/// Forwards connections to a server. When a request with the marker was answered, the answer is
/// held back, the connection breaks (or all of them do), and new connections wait until they are
/// released.
pub(crate) struct MarkerProxy {
    port: u16,
    state: watch::Sender<MarkerState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MarkerState {
    Open,
    Armed(Scope),
    Closed(Scope),
}

/// The connections that break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    OneConnection,
    AllConnections,
}

impl MarkerProxy {
    pub(crate) async fn start(server_port: u16, marker: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = watch::Sender::new(MarkerState::Open);
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward_until_marker(client, server_port, marker, shared.clone()));
            }
        });
        Self { port, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn break_at_marker(&self, scope: Scope) {
        self.state.send_replace(MarkerState::Armed(scope));
    }

    pub(crate) async fn broken(&self) {
        let mut state = self.state.subscribe();
        let broken = state.wait_for(|state| matches!(state, MarkerState::Closed(_)));
        tokio::time::timeout(Duration::from_mins(1), broken).await.expect("it breaks").unwrap();
    }

    pub(crate) fn let_through(&self) {
        self.state.send_replace(MarkerState::Open);
    }
}

async fn forward_until_marker(
    mut client: TcpStream,
    server_port: u16,
    marker: &str,
    state: watch::Sender<MarkerState>,
) {
    let mut watched = state.subscribe();
    let _ = watched.wait_for(|state| !matches!(state, MarkerState::Closed(_))).await;
    let mut server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
    let (mut sent, mut answered) = (vec![0; 65536], vec![0; 65536]);
    loop {
        tokio::select! {
            () = all_closed(&mut watched) => return,
            read = client.read(&mut sent) => match read {
                Ok(len) if len > 0 => {
                    let found = sent[..len].windows(marker.len()).any(|it| it == marker.as_bytes());
                    if server.write_all(&sent[..len]).await.is_err() { return }
                    let now = *state.borrow();
                    if let (MarkerState::Armed(scope), true) = (now, found) {
                        let _ = server.read(&mut answered).await;
                        state.send_replace(MarkerState::Closed(scope));
                        return;
                    }
                }
                _ => return,
            },
            read = server.read(&mut answered) => match read {
                Ok(len) if len > 0 => {
                    if client.write_all(&answered[..len]).await.is_err() { return }
                }
                _ => return,
            },
        }
    }
}

async fn all_closed(state: &mut watch::Receiver<MarkerState>) {
    let _ = state.wait_for(|state| *state == MarkerState::Closed(Scope::AllConnections)).await;
}

async fn forward(mut client: TcpStream, mut server: TcpStream, breaks: Arc<AtomicU8>) {
    let is_next = |when: Break| {
        breaks.compare_exchange(when as u8, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    };
    let (mut sent, mut answered) = (vec![0; 65536], vec![0; 65536]);
    loop {
        tokio::select! {
            read = client.read(&mut sent) => match read {
                Ok(len) if len > 0 && !is_next(Break::BeforeRequest) => {
                    if server.write_all(&sent[..len]).await.is_err() { return }
                }
                _ => return,
            },
            read = server.read(&mut answered) => match read {
                Ok(len) if len > 0 && !is_next(Break::BeforeAnswer) => {
                    if client.write_all(&answered[..len]).await.is_err() { return }
                }
                _ => return,
            },
        }
    }
}
