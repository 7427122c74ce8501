//! The stores that the program can test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnstream::Error;
use turnstream::session::Store;

/// A kind of store, which the flag `--store` selects.
pub trait StoreKind: Clone + Send + Sync + 'static {
    /// The values of the flag, for the help.
    const VALUES: &'static str;

    /// Parses the value of the flag, or returns the default kind if the flag is absent.
    fn parse(value: Option<&str>) -> Result<Self, String>;

    /// Returns the value that [`parse`](Self::parse) turns into this kind.
    fn value(&self) -> &str;

    /// Returns a name for the folder of the campaign.
    fn name(&self) -> &'static str;

    /// Opens the store that belongs to a folder.
    fn open(&self, folder: &Path) -> impl Future<Output = Result<Arc<dyn Store>, Error>> + Send;

    /// Returns the file of the session in lines of JSON, if the store has one file per session.
    fn session_file(&self, folder: &Path) -> Option<PathBuf>;
}
