//! The versions of the client.

/// The major version of `ai` that the front end uses.
///
/// | | V5 | V6 | V7 |
/// |---|---|---|---|
/// | a call that needs an approval | `data-approval` | an approval of its part | the same |
/// | a verdict that came during the run | | | `tool-approval-response` |
/// | a call that was denied | an error | denied | denied |
/// | a turn that was taken back | `data-retracted` | the same | its parts vanish |
/// | what was steered in | `data-steer` | the same | `steering-message` |
/// | an interrupted run | ends with `abort` | with `abort` and `other` | with `abort` and `interrupted` |
///
/// Clients refuse a whole stream for one chunk that they do not know. What V6 sends is also read by 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// Any `ai` 5.
    V5,
    /// Any `ai` 6 or 7: the default.
    #[default]
    V6,
    /// `ai` 7.
    V7,
}
