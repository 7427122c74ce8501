//! The input of a run.

use crate::event::UndeliveredInput;
use crate::item::{Content, Item};

/// The items that a run starts with. A string is one user message.
///
/// The default is empty: the run continues from the end of its history, for example from the tool
/// results after which an earlier run was stopped.
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

/// One user message, with images and files.
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

/// No input: the model continues the history as it is.
impl From<()> for Input {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// Input that one run could not deliver becomes the input of another.
impl From<UndeliveredInput> for Input {
    fn from(undelivered: UndeliveredInput) -> Self {
        Self(undelivered.items)
    }
}
