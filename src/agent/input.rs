//! What is handed to a run.

use crate::event::UndeliveredInput;
use crate::item::{Content, Item};

/// Items that are handed to a run: a text is one message of the user.
///
/// The default is nothing: a run goes on with what its history ends with, such as the results of
/// tools, behind which another was stopped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input(pub Vec<Item>);

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self(vec![Item::user(text)])
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self(vec![Item::user(text)])
    }
}

/// A message of the user, with images and files.
impl From<Content> for Input {
    fn from(content: Content) -> Self {
        Self(vec![Item::user(content)])
    }
}

impl From<Item> for Input {
    fn from(item: Item) -> Self {
        Self(vec![item])
    }
}

impl From<Vec<Item>> for Input {
    fn from(items: Vec<Item>) -> Self {
        Self(items)
    }
}

/// Nothing: the model goes on with the history as it is.
impl From<()> for Input {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// What came too late for one run, for the next.
impl From<UndeliveredInput> for Input {
    fn from(undelivered: UndeliveredInput) -> Self {
        Self(undelivered.items)
    }
}
