//! Defines the input for a run.

use crate::event::UndeliveredInput;
use crate::item::{Content, Item, Part};

/// The items that are passed to a run as its input. A string is converted into a single user
/// message.
///
/// The default input is empty. A run with empty input continues from the end of its history, for
/// example after the tool results of an earlier run that was stopped.
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

/// Converts content, which may include images and files, into a single user message.
impl From<Content> for Input {
    fn from(content: Content) -> Self {
        Self(vec![Item::user(content)])
    }
}

/// Converts parts, such as text and an image, into a single user message.
impl From<Vec<Part>> for Input {
    fn from(parts: Vec<Part>) -> Self {
        Self::from(Content::from(parts))
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

/// Converts `()` into empty input, so that the model continues from the end of the history.
impl From<()> for Input {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// Converts input that one run could not deliver into input for another run.
impl From<UndeliveredInput> for Input {
    fn from(undelivered: UndeliveredInput) -> Self {
        Self(undelivered.items)
    }
}
