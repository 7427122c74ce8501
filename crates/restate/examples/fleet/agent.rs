//! The agent of the workers.

use std::env;
use std::sync::Arc;

use serde::Serialize;
use turnstream::provider::{self, Provider};
use turnstream::{Agent, Error, ErrorKind};

use crate::flags::Flags;
use crate::{scripted_model, tools};

/// A description of the model for the user.
#[derive(Clone, Serialize)]
pub(crate) struct AboutModel {
    pub(crate) model: String,
    /// Whether the model's replies are scripted.
    pub(crate) is_scripted: bool,
    /// Whether the model can read the working directory.
    pub(crate) has_tools: bool,
}

impl AboutModel {
    pub(crate) fn describe(&self) -> String {
        match self.is_scripted {
            true => "scripted (only the results of its tools are real)".to_owned(),
            false => self.model.clone(),
        }
    }
}

/// Returns the model that the flags or the keys in the environment select, else the scripted one.
/// No request is sent.
pub(crate) fn choose_model(flags: &Flags) -> Result<(Arc<dyn Provider>, AboutModel), Error> {
    let chosen = match &flags.model {
        _ if flags.is_scripted => None,
        Some(model) => Some(provider::from_model_name(model)?),
        None => match provider::from_env() {
            Ok(model) => Some(model),
            Err(error) if error.kind() == ErrorKind::Auth => None,
            Err(error) => return Err(error),
        },
    };
    let is_scripted = chosen.is_none();
    let model = chosen.unwrap_or_else(|| Arc::new(scripted_model::model()));
    let about = AboutModel { model: model.model().to_owned(), is_scripted, has_tools: true };
    Ok((model, about))
}

/// Builds the agent, whose tools work in the working directory.
pub(crate) fn build(model: Arc<dyn Provider>) -> Result<Agent, Error> {
    let here = env::current_dir().and_then(|here| here.canonicalize()).map_err(|error| {
        Error::new(ErrorKind::Other, format!("the working directory cannot be read: {error}"))
    })?;
    let system = "Answer briefly, in Markdown. Your tools work in the user's working directory; use \
         them rather than guess. Write a file only if the user asks for it.";
    Ok(Agent::new(model).with_system(system).with_toolkit(tools::toolkit(&here)))
}
