//! The folder that contains session files.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::session::backend::{SESSION_FILE_SUFFIX, id_from_file_name, store_error};

/// Returns the folder that contains the file at `path`.
pub(super) fn parent_folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Returns the paths of all files that may be sessions, each with the session id if the file name
/// determines the id.
pub(super) fn session_files_in(folder: &Path) -> Result<Vec<(PathBuf, Option<String>)>, Error> {
    let cannot = |error| store_error(format!("cannot read `{}`", folder.display()), error);
    let mut files = Vec::new();
    for file in folder.read_dir().map_err(cannot)? {
        let path = file.map_err(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.and_then(|name| name.strip_suffix(SESSION_FILE_SUFFIX)) else {
            continue;
        };
        match id_from_file_name(name) {
            Some(id) if path.is_file() => files.push((path, Some(id))),
            None if name.contains('~') && path.is_file() => files.push((path, None)),
            Some(_) | None => {}
        }
    }
    Ok(files)
}
