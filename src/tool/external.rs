//! Tools that somebody outside runs.

use crate::error::Error;
use crate::tool::{Tool, ToolContext, ToolHandler, ToolSpec, Updates, check, checked_spec};

impl Tool {
    /// Makes a tool that nothing here runs: its calls are left pending for somebody outside.
    ///
    /// Arguments are checked as those of [`Tool::raw`]. Without a [`Gate`](crate::tool::Gate)
    /// nobody outside is told, and calls are answered as skipped.
    ///
    /// ```
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let spec = ToolSpec {
    ///     name: "ask_the_user".into(),
    ///     description: "Asks the user".into(),
    ///     parameters: serde_json::json!({ "type": "object" }),
    /// };
    /// assert!(Tool::external(spec)?.is_external());
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Tool::raw`].
    pub fn external(spec: ToolSpec) -> Result<Self, Error> {
        let spec = checked_spec(spec)?;
        let schema = check::Schema::new(&spec)?;
        let mut tool = Self::from_handler(External { spec, schema });
        tool.settings.external = true;
        Ok(tool)
    }
}

struct External {
    spec: ToolSpec,
    schema: check::Schema,
}

impl ToolHandler for External {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check(&self, arguments: &str) -> Result<(), String> {
        self.schema.read(&self.spec, arguments).map(drop)
    }

    fn call(&self, _: &str, _: ToolContext) -> Result<Updates, String> {
        Err("it runs elsewhere".to_owned())
    }
}
