//! A connection that breaks at a chosen moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Forwards connections to a server, and breaks one when it is asked to.
pub(crate) struct Proxy {
    port: u16,
    breaks: Arc<AtomicU8>,
}

/// When the next connection breaks that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// What the client sends does not arrive.
    BeforeRequest = 1,
    /// The server has done what it was asked for, and its answer does not arrive.
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
