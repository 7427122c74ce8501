//! One check for many seeds.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of `check`, or the message of its panic. Panics on this thread print nothing
/// while it runs.
pub fn catch_panic_quietly<T>(check: impl FnOnce() -> T) -> Result<T, String> {
    static INSTALL_HOOK: Once = Once::new();
    INSTALL_HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            if !IS_QUIET.get() {
                print(panicked);
            }
        }));
    });
    IS_QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(check));
    IS_QUIET.set(false);
    result.map_err(|payload| panic_message(&*payload))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_default().chars().take(1_500).collect()
}

/// Counts the endings that `check` returns for these seeds. Panics if `check` panics for a seed,
/// with the first such seeds.
#[track_caller]
pub fn count_endings(
    seeds: impl IntoIterator<Item = u64>,
    mut check: impl FnMut(u64) -> Vec<String>,
) -> BTreeMap<String, u32> {
    let mut endings = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in seeds {
        match catch_panic_quietly(|| check(seed)) {
            Ok(all) => all.into_iter().for_each(|end| *endings.entry(end).or_default() += 1),
            Err(message) => failed.push(format!("seed {seed}: {message}")),
        }
    }
    println!("{endings:?}");
    let first = failed[..failed.len().min(5)].join("\n\n");
    assert!(failed.is_empty(), "{} seeds failed: {first}", failed.len());
    endings
}
