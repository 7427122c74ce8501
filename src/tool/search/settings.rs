//! Settings for tool search.

use std::num::NonZeroUsize;

/// The name of the tool that finds tools.
pub(crate) const SEARCH_TOOLS: &str = "search_tools";

/// The name of the tool that calls other tools.
pub(crate) const CALL_TOOL: &str = "call_tool";

/// The default maximum number of tools that a search returns.
const DEFAULT_MAX_RESULTS: usize = 5;

/// The default maximum length of a search result, in bytes.
const DEFAULT_MAX_RESULT_BYTES: usize = 16 * 1024;

/// Settings for [tool search](crate::Toolkit::with_search): the tools that the model sees without
/// searching, and the maximum size of a search result.
///
/// ```
/// use std::num::NonZeroUsize;
/// use turnstream::Toolkit;
/// use turnstream::tool::ToolSearch;
///
/// let search = ToolSearch::new()
///     .with_always_listed(["read_file"])
///     .with_max_results(NonZeroUsize::new(3).unwrap());
/// let kit = Toolkit::default().with_search(search);
/// # drop(kit);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSearch {
    pub(super) always_listed: Vec<String>,
    pub(super) max_results: usize,
    pub(super) max_result_bytes: usize,
}

impl ToolSearch {
    /// Creates the default settings. By default, the model must search for every tool, and a search
    /// returns at most 5 tools and 16 KiB of text.
    pub fn new() -> Self {
        Self {
            always_listed: Vec::new(),
            max_results: DEFAULT_MAX_RESULTS,
            max_result_bytes: DEFAULT_MAX_RESULT_BYTES,
        }
    }

    /// Sets the names of the tools that the model sees without searching. Names of tools that are
    /// not in the toolkit are ignored.
    pub fn with_always_listed<N: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        self.always_listed = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the maximum number of tools that a search returns. The default is 5. The model can ask
    /// for fewer tools.
    pub fn with_max_results(mut self, max_results: NonZeroUsize) -> Self {
        self.max_results = max_results.get();
        self
    }

    /// Sets the maximum length of a search result, in bytes. The default is 16 KiB. For tools that
    /// do not fit within this length, only the names are returned. The best match is always
    /// returned in full.
    pub fn with_max_result_bytes(mut self, max_bytes: usize) -> Self {
        self.max_result_bytes = max_bytes;
        self
    }
}

impl Default for ToolSearch {
    fn default() -> Self {
        Self::new()
    }
}
