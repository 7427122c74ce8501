//! A folder for the files of one test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// A folder for one test, removed on drop.
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates an empty folder, with a name that no other folder of the process has.
    #[expect(clippy::new_without_default, reason = "it creates a folder")]
    pub fn new() -> Self {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("turnstream-test-{}-{number}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The permissions of a file.
#[cfg(unix)]
pub fn file_mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;

    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Sets the permissions of a file.
#[cfg(unix)]
pub fn set_file_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;

    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
