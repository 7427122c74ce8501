//! Providers that use a wire without a network.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::Value;
use turnstream::Request;
use turnstream::provider::Provider;
use turnstream::stream::TurnStream;
use turnstream_testing::{Answer, Wire, lint};

use crate::tools::Counter;
use crate::wires::{decode_chunks, decode_stream, encode};

/// A provider that uses a wire: it answers each request with the next body, chunk by chunk.
pub struct ChunkedProvider {
    chunks_by_turn: Vec<Vec<String>>,
    wire: Wire,
    /// The received requests.
    pub requests: Arc<Mutex<Vec<Request>>>,
    /// The number of open bodies.
    pub open_bodies: Counter,
    /// The number of chunks that were read.
    pub chunks_read: Arc<AtomicUsize>,
}

impl ChunkedProvider {
    pub fn new(turns: Vec<Vec<String>>, wire: Wire) -> Self {
        let (requests, open, read) = (Arc::default(), Counter::default(), Arc::default());
        Self { chunks_by_turn: turns, wire, requests, open_bodies: open, chunks_read: read }
    }
}

impl Provider for ChunkedProvider {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let history = request.history.clone();
        let mut requests = self.requests.lock().unwrap();
        let body = self.chunks_by_turn[requests.len()].clone();
        requests.push(request);
        let (open, read) = (self.open_bodies.enter(), Arc::clone(&self.chunks_read));
        let pieces = stream::iter(body).map(move |piece| {
            let _open = &open;
            read.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from(piece))
        });
        decode_stream(self.wire, "m", &history, pieces)
    }

    fn model(&self) -> &'static str {
        "m"
    }
}

/// A provider that uses a wire without a network: it answers each request with the next body.
#[derive(Clone)]
pub struct WireProvider {
    wire: Wire,
    model: &'static str,
    bodies: Arc<Mutex<VecDeque<Vec<u8>>>>,
    sent_bodies: Arc<Mutex<Vec<Value>>>,
}

impl WireProvider {
    pub fn new<A: Into<Answer>>(
        wire: Wire,
        model: &'static str,
        answers: impl IntoIterator<Item = A>,
    ) -> Self {
        let body = |(n, answer): (usize, A)| {
            let body = String::from_utf8(answer.into().to_bytes(wire)).unwrap();
            // Each response has ids of its own, like a server's.
            body.replace("_0000", &format!("_{n:04}")).into_bytes()
        };
        let bodies = answers.into_iter().enumerate().map(body).collect();
        Self { wire, model, bodies: Arc::new(Mutex::new(bodies)), sent_bodies: Arc::default() }
    }

    /// The bodies of the requests, after checking that the vendor would accept each of them.
    #[track_caller]
    pub fn sent_bodies(&self) -> Vec<Value> {
        let sent = self.sent_bodies.lock().unwrap().clone();
        for body in &sent {
            assert_eq!(lint::request(self.wire, "m", body), Vec::<String>::new(), "{}", self.wire);
        }
        sent
    }
}

impl Provider for WireProvider {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let body = encode(self.wire, self.model, &request);
        self.sent_bodies.lock().unwrap().push(body);
        let body = self.bodies.lock().unwrap().pop_front().expect("the script has a reply");
        decode_chunks(self.wire, self.model, &request.history, vec![body])
    }

    fn model(&self) -> &str {
        self.model
    }
}
