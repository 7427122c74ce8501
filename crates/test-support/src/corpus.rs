//! The folder of recorded streams, which is not part of the repository.

use std::env;
use std::path::{Path, PathBuf};

/// The folder that `TURNSTREAM_CORPUS` names, by default `../shared/corpus`.
pub fn corpus_folder() -> PathBuf {
    let folder = env::var_os("TURNSTREAM_CORPUS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
        PathBuf::from,
    );
    assert!(folder.is_dir(), "there are no recordings at {}", folder.display());
    folder
}
