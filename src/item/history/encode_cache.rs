//! A cache for a history's encoded form.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;

use crate::chunked_bytes::ChunkedBytes;
use crate::item::EncodingKey;
use crate::item::history::node::{Node, drop_iteratively};
use crate::lock::lock_ignoring_poison;

/// The maximum number of cached branches. For example, a model, its fallback and forks of the
/// history can each use a branch.
const MAX_CACHE_BRANCHES: usize = 4;

/// The cached output of encoders. Clones of a history share the cache; a fork starts with a copy of
/// it.
#[derive(Default)]
pub(super) struct EncodeCache(Mutex<Vec<CacheBranch>>);

/// The output of a single encoder, as a list of chunks. The most recently used branch is last in
/// the cache.
#[derive(Clone)]
struct CacheBranch {
    key: EncodingKey,
    newest_chunk: Arc<EncodedChunk>,
}

/// The bytes that an encoder wrote for a range of items, with a link to the preceding chunk.
///
/// The bytes of a chunk never change, so branches share the chunks before the point where they
/// diverge.
pub(crate) struct EncodedChunk {
    /// The last item in the range, which is compared by address. This weak reference does not keep
    /// the item alive.
    last_node: Weak<Node>,
    len: usize,
    /// The chunk's own bytes. After they were merged with those of other chunks, this is a part of
    /// the merged bytes, so that they are not in memory twice.
    bytes: Mutex<Bytes>,
    /// The block that ends with this chunk, if any.
    block: Option<Block>,
    /// The number of bytes up to the end of the newest block.
    bytes_in_blocks: usize,
    /// The total number of bytes in this chunk and all older chunks.
    total_bytes: usize,
    /// The state from which the encoder continues after this chunk.
    encoder_state: Box<dyn Any + Send + Sync>,
    older: Option<Arc<EncodedChunk>>,
}

/// The bytes of one or several chunks, which request bodies share. The last chunks of a history,
/// which do not form a block yet, are copied into each body.
struct Block {
    /// The merged bytes of the chunks before a chunk that is large enough for a block of its own.
    /// They are separate, so that a short chunk does not keep a large one in memory.
    before: Option<Bytes>,
    bytes: Bytes,
    /// The chunk that precedes the block.
    previous: Option<Arc<EncodedChunk>>,
}

/// The minimum number of bytes in a block. Larger blocks would mean more copied bytes in each
/// request body, and smaller blocks more pieces to send. Bytes are merged only up to twice this
/// size.
const MIN_BLOCK_BYTES: usize = 32 * 1024;

impl Drop for EncodedChunk {
    fn drop(&mut self) {
        // The block refers to an older chunk, too.
        self.block = None;
        drop_iteratively(self.older.take(), |link| link.older.take());
    }
}

impl EncodedChunk {
    pub(super) fn new(
        node: &Arc<Node>,
        older: Option<&Arc<Self>>,
        len: usize,
        bytes: Vec<u8>,
        state: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let total_bytes = older.map_or(0, |older| older.total_bytes) + bytes.len();
        let mut chunk = Self {
            last_node: Arc::downgrade(node),
            len,
            bytes: Mutex::new(bytes.into_boxed_slice().into()),
            block: None,
            bytes_in_blocks: older.map_or(0, |older| older.bytes_in_blocks),
            total_bytes,
            encoder_state: state,
            older: older.map(Arc::clone),
        };
        if total_bytes - chunk.bytes_in_blocks >= MIN_BLOCK_BYTES {
            chunk.block = Some(chunk.merge());
            chunk.bytes_in_blocks = total_bytes;
        }
        chunk
    }

    /// Creates a block of the chunks since the last block, including this chunk.
    fn merge(&self) -> Block {
        let chunks = self.chunks_after_block();
        let previous = chunks.last().and_then(|oldest| oldest.older.clone());
        let newest = self.bytes().clone();
        if newest.len() >= MIN_BLOCK_BYTES {
            return Block { before: merge_bytes(&chunks[1..]), bytes: newest, previous };
        }
        Block { before: None, bytes: merge_bytes(&chunks).unwrap_or(newest), previous }
    }

    /// Returns this chunk and the older chunks that are not part of a block, newest first.
    fn chunks_after_block(&self) -> Vec<&Self> {
        let chunks = std::iter::successors(Some(self), |chunk| chunk.older.as_deref());
        chunks.take_while(|chunk| chunk.block.is_none()).collect()
    }

    fn bytes(&self) -> MutexGuard<'_, Bytes> {
        lock_ignoring_poison(&self.bytes)
    }

    /// Returns the number of encoded items.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the total number of bytes in this chunk and all older chunks.
    pub(crate) fn total_byte_len(&self) -> usize {
        self.total_bytes
    }

    pub(crate) fn encoder_state<S: Any>(&self) -> Option<&S> {
        self.encoder_state.downcast_ref()
    }

    /// Appends the bytes of all older chunks and of this chunk to `out`, and reserves capacity for
    /// `additional` bytes after them. Blocks are not copied.
    pub(crate) fn append_to(&self, out: &mut ChunkedBytes, additional: usize) {
        let newest = self.chunks_after_block();
        let last = match newest.last() {
            Some(oldest) => oldest.older.as_deref(),
            None => Some(self),
        };
        let newest_block = last.and_then(|chunk| chunk.block.as_ref());
        let blocks: Vec<&Block> =
            std::iter::successors(newest_block, |block| block.previous.as_ref()?.block.as_ref())
                .collect();
        for block in blocks.into_iter().rev() {
            out.push_shared(block.before.clone().unwrap_or_default());
            out.push_shared(block.bytes.clone());
        }
        out.reserve(self.total_bytes - self.bytes_in_blocks + additional);
        for chunk in newest.into_iter().rev() {
            out.extend_from_slice(&chunk.bytes());
        }
    }
}

/// Merges the bytes of chunks, which are given newest first. Each chunk then has a part of the
/// merged bytes. Returns `None` if there are no chunks.
fn merge_bytes(chunks: &[&EncodedChunk]) -> Option<Bytes> {
    if let [] | [_] = chunks {
        return chunks.first().map(|only| only.bytes().clone());
    }
    let mut all = Vec::with_capacity(chunks.iter().map(|chunk| chunk.bytes().len()).sum());
    for chunk in chunks.iter().rev() {
        all.extend_from_slice(&chunk.bytes());
    }
    let all = Bytes::from(all);
    let mut start = 0;
    for chunk in chunks.iter().rev() {
        let mut bytes = chunk.bytes();
        let end = start + bytes.len();
        *bytes = all.slice(start..end);
        start = end;
    }
    Some(all)
}

impl EncodeCache {
    /// Copies the cache for a fork of the history.
    pub(super) fn fork(&self) -> Self {
        Self(Mutex::new(self.with_branches(|lines| lines.clone())))
    }

    /// Looks up the newest chunk that was written by an encoder with this key and that covers only
    /// items up to `tip`.
    pub(super) fn newest_chunk<K: PartialEq + Any>(
        &self,
        key: &K,
        tip: Option<&Arc<Node>>,
    ) -> Option<Arc<EncodedChunk>> {
        let lines: Vec<Arc<EncodedChunk>> = self.with_branches(|lines| {
            let mine = lines.iter().rev().filter(|line| line.key.is(key));
            mine.map(|line| Arc::clone(&line.newest_chunk)).collect()
        });
        let mut best: Option<Arc<EncodedChunk>> = None;
        for newest in lines {
            let Some(piece) = newest_chunk_up_to(&newest, tip) else { continue };
            let is_newest = Arc::ptr_eq(&piece, &newest);
            if best.as_ref().is_none_or(|best| best.len < piece.len) {
                best = Some(piece);
            }
            if is_newest {
                break;
            }
        }
        best
    }

    /// Caches the chunk `newest`, which follows the chunk `older`, if any.
    pub(super) fn insert<K: PartialEq + Any + Send + Sync>(
        &self,
        key: K,
        older: Option<&Arc<EncodedChunk>>,
        newest: EncodedChunk,
    ) {
        let newest = Arc::new(newest);
        let forgotten = self.with_branches(|lines| {
            let continues = |line: &CacheBranch| {
                line.key.is(&key)
                    && (older.is_some_and(|older| Arc::ptr_eq(older, &line.newest_chunk))
                        || line.newest_chunk.last_node.ptr_eq(&newest.last_node))
            };
            let mut line = match lines.iter().position(continues) {
                Some(at) => lines.remove(at),
                None => {
                    CacheBranch { key: EncodingKey::new(key), newest_chunk: Arc::clone(&newest) }
                }
            };
            let before = std::mem::replace(&mut line.newest_chunk, newest);
            // Chunks whose items were dropped can no longer be used.
            let mut forgotten: Vec<CacheBranch> =
                lines.extract_if(.., |line| !line.drop_stale_chunks()).collect();
            lines.push(line);
            let many = lines.len().saturating_sub(MAX_CACHE_BRANCHES);
            forgotten.extend(lines.drain(..many));
            (forgotten, before)
        });
        // The branches are dropped after the lock is released, because dropping them may take a
        // long time.
        drop(forgotten);
    }

    fn with_branches<T>(&self, f: impl FnOnce(&mut Vec<CacheBranch>) -> T) -> T {
        // No user code runs while the lock is held.
        f(&mut lock_ignoring_poison(&self.0))
    }
}

impl CacheBranch {
    /// Removes the chunks whose items were dropped. Returns whether any chunks are left.
    fn drop_stale_chunks(&mut self) -> bool {
        while self.newest_chunk.last_node.strong_count() == 0 {
            let Some(older) = self.newest_chunk.older.clone() else { return false };
            self.newest_chunk = older;
        }
        true
    }
}

/// Returns the branch's newest chunk that covers only items up to `tip`.
fn newest_chunk_up_to(
    newest: &Arc<EncodedChunk>,
    tip: Option<&Arc<Node>>,
) -> Option<Arc<EncodedChunk>> {
    let (mut piece, mut node) = (Some(newest), tip);
    while let (Some(written), Some(here)) = (piece, node) {
        if here.len > written.len {
            node = here.parent.as_ref();
        } else if std::ptr::eq(Arc::as_ptr(here), written.last_node.as_ptr()) {
            return Some(Arc::clone(written));
        } else {
            piece = written.older.as_ref();
        }
    }
    None
}
