//! The supported client versions.

/// The major version of the `ai` package that the front end uses.
///
/// | | V5 | V6 | V7 |
/// |---|---|---|---|
/// | a call that needs approval | `data-approval` | an approval request on the call's part | same as V6 |
/// | a verdict that arrived during the run | | | `tool-approval-response` |
/// | a call that was denied | an error | denied | denied |
/// | a retracted turn | `data-retracted` | `data-retracted` | its parts are removed |
/// | steering input | `data-steer` | `data-steer` | `steering-message` |
/// | an interrupted run | ends with `abort` | with `abort` and `other` | with `abort` and `interrupted` |
///
/// A client rejects the whole stream if the stream contains an unknown chunk. Version 7 clients
/// also accept the chunks for V6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// Any release of `ai` 5.
    V5,
    /// Any release of `ai` 6 or 7. `V6` is the default version.
    #[default]
    V6,
    /// Any release of `ai` 7.
    V7,
}
