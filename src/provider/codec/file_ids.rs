//! Recognizes the vendor that has assigned the id of a file.

use crate::error::{Error, ErrorKind};
use crate::item::{Media, MediaSource};

/// A vendor whose files have ids of an unmistakable form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) enum FileIdVendor {
    Anthropic,
    OpenAi,
    Google,
}

impl FileIdVendor {
    /// Returns the vendor that has assigned an id. Returns `None` if the id may be that of another
    /// server.
    fn of_id(id: &str) -> Option<Self> {
        // `file_011CNha8iCJcU1wXNR6q4V8w`, `file-XjGxS3KTG0uNmNOK362iJua3`, `files/abc-123`.
        let forms = [("file_", Self::Anthropic), ("file-", Self::OpenAi), ("files/", Self::Google)];
        forms.into_iter().find(|(prefix, _)| id.starts_with(prefix)).map(|(_, vendor)| vendor)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "Anthropic",
            Self::OpenAi => "OpenAI",
            Self::Google => "Google",
        }
    }

    /// Checks that a file which is sent to this vendor was not uploaded to another one.
    ///
    /// # Errors
    ///
    /// Returns an [`Unsupported`](ErrorKind::Unsupported) error for the id of another vendor.
    pub(in crate::provider) fn ensure_own(self, media: &Media) -> Result<(), Error> {
        let MediaSource::FileId(id) = &media.source else { return Ok(()) };
        match Self::of_id(id) {
            Some(other) if other != self => {
                let message =
                    format!("the id is that of a file at {}, not {}", other.name(), self.name());
                Err(Error::new(ErrorKind::Unsupported, message).with_parameter("content"))
            }
            Some(_) | None => Ok(()),
        }
    }
}
