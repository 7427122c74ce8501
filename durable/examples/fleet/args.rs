//! The arguments for the model and its tools, as the modules of the example `agent` expect them.

use std::time::Duration;

use crate::provider::{Dialect, ProviderName};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Args {
    pub(crate) provider: Option<ProviderName>,
    pub(crate) dialect: Option<&'static Dialect>,
    pub(crate) base_url: Option<String>,
    /// Whether the key may be sent over plain http to another machine.
    pub(crate) plain_http: bool,
    pub(crate) model: Option<String>,
    pub(crate) system: Option<String>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) no_tools: bool,
    /// Has no flag here.
    pub(crate) offline_delay: Option<Duration>,
}
