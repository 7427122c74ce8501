//! Agents as streams you pull.

pub mod agent;
pub mod env;
pub mod error;
pub mod event;
pub mod http;
pub mod item;
pub mod provider;
pub mod request;
pub mod sse;
pub mod story;
pub mod stream;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;
pub mod turn;
pub mod usage;

pub use agent::{Agent, Run};
pub use error::{Error, ErrorKind};
pub use event::{Event, Outcome};
pub use item::{History, Item};
pub use request::Request;
pub use story::{Events, Journal};
pub use turn::Turn;
pub use usage::Usage;
