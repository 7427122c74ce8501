//! Replaces `servers` in a build without MCP, in which the command line names no servers.

use std::future::{Ready, ready};

use turnstream::{Agent, Error};

use crate::args::ServerArg;

pub(crate) struct Servers;

impl Servers {
    #[expect(clippy::unnecessary_wraps, reason = "the other `Servers` can fail")]
    pub(crate) fn new(_args: &[ServerArg]) -> Result<Self, String> {
        Ok(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        let Self = self;
        true
    }

    pub(crate) fn start(&self) -> Ready<Result<Vec<String>, Error>> {
        let Self = self;
        ready(Ok(Vec::new()))
    }

    pub(crate) fn add_tools(&self, agent: Agent) -> Agent {
        let Self = self;
        agent
    }

    pub(crate) fn close(&self) -> Ready<()> {
        let Self = self;
        ready(())
    }
}
