//! Tools that somebody outside runs.

use crate::error::Error;
use crate::tool::settings::ToolFlag;
use crate::tool::{Tool, ToolOutput, ToolSpec};

impl Tool {
    /// Makes a tool that nothing here runs: its calls are left pending for somebody outside.
    ///
    /// Arguments are checked as those of [`Tool::raw`]. Without a [`ToolPolicy`](crate::tool::ToolPolicy)
    /// nobody outside is told, and calls are answered as skipped.
    ///
    /// ```
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let spec = ToolSpec::new(
    ///     "ask_the_user",
    ///     "Asks the user",
    ///     serde_json::json!({ "type": "object" }),
    /// );
    /// assert!(Tool::external(spec)?.is_external());
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Tool::raw`].
    pub fn external(spec: ToolSpec) -> Result<Self, Error> {
        // No call of it begins here.
        let tool = Self::raw(spec, |_, _| async { ToolOutput::error("It runs elsewhere.") })?;
        Ok(tool.with_flag(ToolFlag::External))
    }
}
