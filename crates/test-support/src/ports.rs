//! Ports for servers that a test starts.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

const FIRST: u16 = 10_000;

/// Systems assign ports from here on: Linux from 32,768, others from 49,152.
const END: u16 = 32_768;

/// Returns a free port that the system assigns neither to connections nor to servers, so that it is
/// still free when a server starts, and when the server is restarted.
///
/// # Panics
///
/// If none is free.
pub fn unassigned_port() -> u16 {
    // Processes that run at the same time try different ports.
    static FIRST_TRIED: LazyLock<u64> =
        LazyLock::new(|| RandomState::new().hash_one(std::process::id()) >> 1);
    static TRIED: AtomicU64 = AtomicU64::new(0);
    let mut tried = (FIRST..END).map(|_| {
        let number = *FIRST_TRIED + TRIED.fetch_add(1, Ordering::Relaxed);
        FIRST + u16::try_from(number % u64::from(END - FIRST)).expect("a remainder of this size")
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    tried.find(is_free).expect("a port is free")
}
