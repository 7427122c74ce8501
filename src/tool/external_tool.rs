//! Tools that run outside the toolkit.

use crate::error::Error;
use crate::tool::settings::ToolFlag;
use crate::tool::{Tool, ToolOutput, ToolSpec};

impl Tool {
    /// Creates a tool that runs outside the toolkit. Calls to this tool stay pending until the
    /// application answers them.
    ///
    /// Arguments are checked in the same way as for [`Tool::raw`]. Without a
    /// [`ToolPolicy`](crate::tool::ToolPolicy), calls to the tool receive a `Skipped` result, since
    /// the application cannot be notified of them.
    ///
    /// ```
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let spec = ToolSpec::new(
    ///     "ask_the_user",
    ///     "Asks the user",
    ///     serde_json::json!({ "type": "object", "properties": {} }),
    /// );
    /// assert!(Tool::external(spec)?.is_external());
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Tool::raw`].
    pub fn external(spec: ToolSpec) -> Result<Self, Error> {
        // Calls to this tool never start, so its closure never runs.
        let tool = Self::raw(spec, |_, _| async { ToolOutput::error("It runs elsewhere.") })?;
        Ok(tool.with_flag(ToolFlag::External))
    }
}
