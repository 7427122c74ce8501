//! What every encoder begins with: the settled context, without what is never sent, and what of it
//! is encoded already.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::item::{EncodedChunk, History, Item, ItemKind};
use crate::provider::body::{ObjectWriter, serialization_error};
use crate::request::Request;

/// All that an item's encoded form depends on beside the items before it.
#[derive(Clone, PartialEq)]
struct CacheKey<E> {
    wire: &'static str,
    /// Whose own data goes back.
    model: String,
    extra: E,
}

/// The settled context of a request, its leading instructions joined to the stable zone. `S` is what
/// the encoder knows of the items before, `E` what an item depends on beside wire and model.
pub(super) struct EncodeContext<S, E = ()> {
    key: CacheKey<E>,
    settled_history: History,
    stable_system: String,
    volatile_system: String,
    /// The instructions before anything else.
    leading_system_texts: Arc<[String]>,
    /// How many entries are either these or encoded.
    done_entries: usize,
    /// What is encoded.
    encoded_chunk: Option<Arc<EncodedChunk>>,
    state: PhantomData<S>,
}

/// What a piece remembers.
struct CachedPrefix<S> {
    leading_system_texts: Arc<[String]>,
    encoder_state: S,
}

/// Encoded elements of an array, each with a comma behind it.
#[derive(Debug, Default)]
pub(super) struct JsonElements(pub(super) Vec<u8>);

/// The place up to which an encoder has closed all that it wrote.
pub(super) struct ClosedElements<S> {
    /// The place, as [`Context::items`] gives it.
    pub(super) end_index: usize,
    /// What the encoder goes on with behind it.
    pub(super) encoder_state: S,
    /// What was written since the state that it began with.
    pub(super) elements: JsonElements,
}

/// The array of a body that the items are in.
pub(super) struct JsonArray<S> {
    /// The name of its field, the last one of the body.
    pub(super) name: &'static str,
    /// What stands before all items.
    pub(super) leading_elements: JsonElements,
    /// The items that are closed, as far as they were not encoded before.
    pub(super) closed_elements: Option<ClosedElements<S>>,
    /// What stands behind.
    pub(super) remaining_elements: JsonElements,
    /// Something to put in between the bytes of the items, at this place behind the front.
    pub(super) insertion: Option<(usize, Vec<u8>)>,
}

impl<S, E> EncodeContext<S, E>
where
    S: Any + Send + Sync,
    E: Clone + PartialEq + Any + Send + Sync,
{
    pub(super) fn from_request(
        request: &Request,
        wire: &'static str,
        model: &str,
        extra: E,
    ) -> Self {
        let key = CacheKey { wire, model: model.to_owned(), extra };
        let settled = request.context.settled();
        let piece = settled.cached_encoding(&key);
        let known = piece.as_ref().and_then(|piece| piece.encoder_state::<CachedPrefix<S>>());
        let (leading, begun) = match (known, &piece) {
            (Some(known), Some(piece)) => (Arc::clone(&known.leading_system_texts), piece.len()),
            (_, _) => leading_system_items(&settled),
        };
        let mut stable = request.system.stable.clone();
        for text in &*leading {
            if !stable.is_empty() {
                stable.push_str("\n\n");
            }
            stable.push_str(text);
        }
        let volatile = request.system.volatile.clone();
        let state = PhantomData;
        Self {
            key,
            settled_history: settled,
            stable_system: stable,
            volatile_system: volatile,
            leading_system_texts: leading,
            done_entries: begun,
            encoded_chunk: piece,
            state,
        }
    }

    /// Begins with the first item, whatever is encoded.
    pub(super) fn restart(self) -> Self {
        let (_, begun) = leading_system_items(&self.settled_history);
        Self { encoded_chunk: None, done_entries: begun, ..self }
    }

    pub(super) fn stable_system(&self) -> &str {
        &self.stable_system
    }

    pub(super) fn volatile_system(&self) -> &str {
        &self.volatile_system
    }

    /// What the encoder knows of the items that are encoded, if any is.
    pub(super) fn encoder_state(&self) -> Option<&S> {
        let known = self.encoded_chunk.as_ref()?.encoder_state::<CachedPrefix<S>>()?;
        Some(&known.encoder_state)
    }

    /// Refuses a request without anything to send: no new `element` says something, and nothing is
    /// encoded.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest).
    pub(super) fn ensure_not_empty(&self, is_empty: bool, element: &str) -> Result<(), Error> {
        if !is_empty || self.encoded_len() > 0 {
            return Ok(());
        }
        let message = format!("there is nothing to send: every {element} is empty");
        Err(Error::new(ErrorKind::InvalidRequest, message))
    }

    /// How many bytes are encoded.
    pub(super) fn encoded_len(&self) -> usize {
        self.encoded_chunk.as_ref().map_or(0, |piece| piece.total_byte_len())
    }

    /// The zones of the system prompt that say something, the stable one first.
    pub(super) fn system_zones(&self) -> impl Iterator<Item = &str> {
        let zones = [self.stable_system.as_str(), self.volatile_system.as_str()];
        zones.into_iter().filter(|zone| !zone.trim().is_empty())
    }

    /// What is to be encoded, in order, each item with the place behind it.
    pub(super) fn items_to_encode(&self) -> impl Iterator<Item = (usize, &Item)> {
        #[cfg(test)]
        tests::count(self.peek_items_to_encode().count());
        self.settled_history.entries_after(self.done_entries).filter(|(_, item)| !item.tombstone)
    }

    /// The same items, for a look ahead.
    pub(super) fn peek_items_to_encode(&self) -> impl Iterator<Item = &Item> {
        let items = self.settled_history.entries_after(self.done_entries).map(|(_, item)| item);
        items.filter(|item| !item.tombstone)
    }

    /// The bytes of a body with the array that the items are in. What is closed is remembered.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if the body is not JSON.
    pub(super) fn write_body(
        &self,
        body: ObjectWriter,
        array: JsonArray<S>,
        extra: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Vec<u8>, Error> {
        let closed = array.closed_elements.as_ref().map_or(0, |closed| closed.elements.0.len());
        let size = array.leading_elements.0.len()
            + self.encoded_len()
            + closed
            + array.remaining_elements.0.len();
        let fill = |out: &mut Vec<u8>| {
            // With room for what stands behind the array and for a mark.
            out.reserve(size + 64);
            out.extend_from_slice(&array.leading_elements.0);
            let begins = out.len();
            if let Some(piece) = &self.encoded_chunk {
                piece.append_to(out);
            }
            if let Some(closed) = &array.closed_elements {
                out.extend_from_slice(&closed.elements.0);
            }
            out.extend_from_slice(&array.remaining_elements.0);
            if let Some((at, mark)) = &array.insertion {
                let at = (begins + at).min(out.len());
                out.splice(at..at, mark.iter().copied());
            }
            if out.last() == Some(&b',') {
                out.pop();
            }
        };
        let bytes = body.into_bytes_with_array(array.name, fill, extra)?;
        if let Some(ClosedElements { end_index: at, encoder_state: state, elements }) =
            array.closed_elements
            && at > self.done_entries
        {
            let known = CachedPrefix {
                leading_system_texts: Arc::clone(&self.leading_system_texts),
                encoder_state: state,
            };
            self.settled_history.cache_encoding(
                self.key.clone(),
                self.encoded_chunk.as_ref(),
                at,
                elements.0,
                known,
            );
        }
        Ok(bytes)
    }
}

impl<S> JsonArray<S> {
    /// Without any element.
    pub(super) fn new(name: &'static str) -> Self {
        let (front, rest) = (JsonElements::default(), JsonElements::default());
        Self {
            name,
            leading_elements: front,
            closed_elements: None,
            remaining_elements: rest,
            insertion: None,
        }
    }

    /// The elements, of which the first `count` are closed up to the place `at`: `(at, count, state)`.
    pub(super) fn from_elements<T: Serialize>(
        name: &'static str,
        elements: &[T],
        closed: Option<(usize, usize, S)>,
    ) -> Result<Self, Error> {
        let mut array = Self::new(name);
        let count = closed.as_ref().map_or(0, |(_, count, _)| *count).min(elements.len());
        let (first, rest) = elements.split_at(count);
        if let Some((at, _, state)) = closed {
            array.closed_elements = Some(ClosedElements {
                end_index: at,
                encoder_state: state,
                elements: JsonElements::of(first)?,
            });
        }
        array.remaining_elements = JsonElements::of(rest)?;
        Ok(array)
    }

    /// Whether nothing is in it that was not encoded before.
    pub(super) fn is_empty(&self) -> bool {
        let closed =
            self.closed_elements.as_ref().is_none_or(|closed| closed.elements.0.is_empty());
        closed && self.leading_elements.0.is_empty() && self.remaining_elements.0.is_empty()
    }
}

impl JsonElements {
    fn of<T: Serialize>(elements: &[T]) -> Result<Self, Error> {
        let mut all = Self::default();
        elements.iter().try_for_each(|element| all.push(element))?;
        Ok(all)
    }

    /// Adds an element.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if it is not JSON.
    pub(super) fn push(&mut self, element: &impl Serialize) -> Result<(), Error> {
        if self.0.is_empty() {
            self.0.reserve(512);
        }
        serde_json::to_writer(&mut self.0, element).map_err(serialization_error)?;
        self.0.push(b',');
        Ok(())
    }
}

/// The instructions before anything else, and how many entries they are.
fn leading_system_items(settled: &History) -> (Arc<[String]>, usize) {
    let mut texts = Vec::new();
    let mut begun = 0;
    for item in settled {
        match &item.kind {
            _ if item.tombstone => {}
            ItemKind::System { text } => texts.push(text.clone()),
            _ => break,
        }
        begun += 1;
    }
    (texts.into(), begun)
}

#[cfg(test)]
mod tests;
