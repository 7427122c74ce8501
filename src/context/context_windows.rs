//! The sizes of the context windows of models.

/// Knows the size of the context window of each model.
///
/// Closures implement this trait. The crate `turnstream-prices` contains an implementation with the
/// windows that vendors publish. See [`Window::by_model`](crate::context::Window::by_model).
///
/// ```
/// use turnstream::context::ContextWindows;
///
/// let windows = |model: &str| (model == "small").then_some(8_000);
/// assert_eq!(windows.context_window("small"), Some(8_000));
/// assert_eq!(windows.context_window("large"), None);
/// ```
pub trait ContextWindows: Send + Sync {
    /// Returns the size of a model's context window, in tokens, or `None` if the model is unknown.
    fn context_window(&self, model: &str) -> Option<u64>;
}

impl<F> ContextWindows for F
where
    F: Fn(&str) -> Option<u64> + Send + Sync,
{
    fn context_window(&self, model: &str) -> Option<u64> {
        self(model)
    }
}
