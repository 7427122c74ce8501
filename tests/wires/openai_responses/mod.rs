//! The Responses wire: responses of servers, and requests to them.

mod calls;
mod client_tools;
mod encode;
mod fixture;
mod hosted_tools;
#[cfg(feature = "http")]
mod over_http;
mod replay;
mod terminal_events;
mod text;

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use turnstream::item::{ItemKind, ResultKind};
use turnstream::provider::Decoding;
use turnstream::provider::openai_responses::{Decoder, encode};
use turnstream::sse::write_frame;
use turnstream::stream::seal;
use turnstream::turn::{PartialTurn, TurnEvent};
use turnstream::{Error, History, Item, Request};

use self::fixture::*;
