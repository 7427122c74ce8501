//! What the agent may do: look at the working directory, read-only, and calculate.

mod calculate;
mod count;
mod look;
mod per_file;
mod root;
mod search;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use turnstream::tool::Toolkit;

use root::Root;

/// The tools, all of which look at `root` and at nothing outside of it.
pub(crate) fn kit(root: PathBuf) -> Toolkit {
    let root = Root::new(root);
    Toolkit::new([
        look::list_directory(root.clone()),
        look::read_file(root.clone()),
        search::search_text(root.clone()),
        count::count_lines(root),
        calculate::calculate(),
    ])
}

/// Does file work on a thread that may wait for a disk.
async fn blocking<T, F>(work: F) -> Result<T, String>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, String> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err("the tool stopped unexpectedly".to_owned()),
    }
}
