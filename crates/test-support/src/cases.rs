//! A sample of the cases of a long test by default, and all of them with `TURNSTREAM_CASES=all`, as
//! `.ci/long` sets it.

/// A test runs every `step`th of its cases, or each of them if all cases are run, for which this
/// function returns 1.
///
/// If the cases are combinations, `step` should share no factor with the lengths of the inner
/// lists: then each of their elements is in the sample.
pub fn sample_step(step: usize) -> usize {
    if all_are_run() { 1 } else { step }
}

/// Whether tests run all their cases.
///
/// # Panics
///
/// Panics if `TURNSTREAM_CASES` has another value than `all`.
pub fn all_are_run() -> bool {
    match std::env::var("TURNSTREAM_CASES").as_deref() {
        Ok("all") => true,
        Ok(other) => panic!("`TURNSTREAM_CASES` is `all` or absent, not `{other}`"),
        Err(_) => false,
    }
}
