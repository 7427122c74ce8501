//! Notes that outlive a session.

mod file_memory;
mod memory;
mod memory_tools;
mod recall;

pub use file_memory::FileMemory;
pub use memory::{Memory, MemoryNote};
pub use memory_tools::memory_tools;
pub use recall::Recall;
