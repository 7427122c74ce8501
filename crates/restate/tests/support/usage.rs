//! The memory and disk space that a server uses.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The resident memory of a process in KiB, from `/proc` (Linux only).
pub(crate) fn memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a VmRSS line");
    line.trim().trim_end_matches(" kB").parse().expect("VmRSS is a number")
}

/// The disk space that is allocated for a folder's files, in bytes. Files that are removed
/// meanwhile are not counted.
pub(crate) fn disk_bytes(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    // The unit of `st_blocks` is 512 bytes on every Unix.
    let own = metadata.blocks() * 512;
    if !metadata.is_dir() {
        return own;
    }
    let Ok(entries) = fs::read_dir(path) else { return own };
    own + entries.flatten().map(|entry| disk_bytes(&entry.path())).sum::<u64>()
}
