//! Models behind a wire, without a network.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::Value;
use turnstream::Request;
use turnstream::provider::Provider;
use turnstream::stream::TurnStream;
use turnstream::testing::{Answer, Wire, lint};

use super::tools::Counter;
use super::wires::{decode, encode, on_wire};

/// A model behind a wire: each request is answered with the next body, piece by piece.
pub(crate) struct Bodies {
    turns: Vec<Vec<String>>,
    wire: Wire,
    /// What was asked.
    pub(crate) asked: Arc<Mutex<Vec<Request>>>,
    /// The bodies that are open.
    pub(crate) open: Counter,
    /// How many pieces were read.
    pub(crate) read: Arc<AtomicUsize>,
}

impl Bodies {
    pub(crate) fn new(turns: Vec<Vec<String>>, wire: Wire) -> Self {
        let (asked, open, read) = (Arc::default(), Counter::default(), Arc::default());
        Self { turns, wire, asked, open, read }
    }
}

impl Provider for Bodies {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let history = request.history.clone();
        let mut asked = self.asked.lock().unwrap();
        let body = self.turns[asked.len()].clone();
        asked.push(request);
        let (open, read) = (self.open.count(), Arc::clone(&self.read));
        let pieces = stream::iter(body).map(move |piece| {
            let _open = &open;
            read.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from(piece))
        });
        on_wire(self.wire, "m", &history, pieces)
    }

    fn model(&self) -> &'static str {
        "m"
    }
}

/// A provider that speaks a wire and has no network: it answers with the next body.
#[derive(Clone)]
pub(crate) struct OnWire {
    wire: Wire,
    model: &'static str,
    bodies: Arc<Mutex<VecDeque<Vec<u8>>>>,
    sent: Arc<Mutex<Vec<Value>>>,
}

impl OnWire {
    pub(crate) fn new<A: Into<Answer>>(
        wire: Wire,
        model: &'static str,
        answers: impl IntoIterator<Item = A>,
    ) -> Self {
        let body = |(n, answer): (usize, A)| {
            let body = String::from_utf8(answer.into().to_bytes(wire)).unwrap();
            // Every response has ids of its own, as those of a server have.
            body.replace("_0000", &format!("_{n:04}")).into_bytes()
        };
        let bodies = answers.into_iter().enumerate().map(body).collect();
        Self { wire, model, bodies: Arc::new(Mutex::new(bodies)), sent: Arc::default() }
    }

    /// The bodies of the requests, none of which its vendor would refuse.
    #[track_caller]
    pub(crate) fn sent(&self) -> Vec<Value> {
        let sent = self.sent.lock().unwrap().clone();
        for body in &sent {
            assert_eq!(lint::request(self.wire, "m", body), Vec::<String>::new(), "{}", self.wire);
        }
        sent
    }
}

impl Provider for OnWire {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let body = encode(self.wire, self.model, &request);
        self.sent.lock().unwrap().push(body);
        let body = self.bodies.lock().unwrap().pop_front().expect("the script has a reply");
        decode(self.wire, self.model, &request.history, vec![body])
    }

    fn model(&self) -> &str {
        self.model
    }
}
