//! Stands in for `servers` in a build without MCP, where the command line names none.

use turnstream::{Agent, Error};

use crate::args::ServerArg;

pub(crate) struct Servers;

impl Servers {
    pub(crate) fn new(_args: &[ServerArg]) -> Result<Self, String> {
        Ok(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        let Self = self;
        true
    }

    pub(crate) async fn start(&self) -> Result<Vec<String>, Error> {
        let Self = self;
        Ok(Vec::new())
    }

    pub(crate) fn add_tools(&self, agent: Agent) -> Agent {
        let Self = self;
        agent
    }

    pub(crate) async fn close(&self) {
        let Self = self;
    }
}
