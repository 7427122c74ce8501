//! The input that all encoders share: a request's [settled](History::settled) context, without the
//! items that are never sent, and the already encoded part of that context.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};

use crate::chunked_bytes::ChunkedBytes;
use crate::error::{Error, ErrorKind};
use crate::item::{EncodedChunk, History, Item, ItemKind};
use crate::provider::codec::body::{ObjectWriter, serialization_error};
use crate::provider::codec::portable_values::has_media;
use crate::provider::codec::unsupported_part::UnsupportedPart;
use crate::request::{Request, SharedText};

/// The settings that, together with the preceding items, determine how an item is encoded.
#[derive(Clone, PartialEq)]
struct CacheKey<E> {
    wire: &'static str,
    /// The request's model; only items produced by the same model keep their provider data.
    model: String,
    unsupported_part: UnsupportedPart,
    extra: E,
}

/// A request's [settled](History::settled) context, with the leading system items appended to the
/// stable system prompt. `S` is the state that an encoder carries from one item to the next. `E` is
/// the type of any settings, other than the wire format and the model, that affect how an item is
/// encoded.
pub(in crate::provider) struct EncodeContext<S, E = ()> {
    key: CacheKey<E>,
    settled_history: History,
    stable_system: SharedText,
    volatile_system: String,
    leading_system: Arc<LeadingSystem>,
    /// The number of history entries that are leading system items or already encoded.
    done_entries: usize,
    /// The number of history entries before the new user messages at the end.
    earlier_entries: usize,
    /// The bytes of the items that are already encoded.
    encoded_chunk: Option<Arc<EncodedChunk>>,
    state: PhantomData<S>,
}

/// The state cached together with the encoded items.
struct CachedPrefix<S> {
    leading_system: Arc<LeadingSystem>,
    encoder_state: S,
}

/// The system items at the start of a history.
struct LeadingSystem {
    /// The text of each item.
    texts: Box<[String]>,
    /// The first stable system prompt to which the texts were appended, and the result.
    appended: OnceLock<(SharedText, SharedText)>,
}

/// A part of the system prompt. The JSON form of the stable part is cached.
#[derive(Clone, Copy)]
pub(in crate::provider) enum SystemZone<'a> {
    Stable(&'a SharedText),
    Volatile(&'a str),
}

/// The encoded elements of an array, each followed by a comma.
#[derive(Debug, Default)]
pub(in crate::provider) struct JsonElements(pub(in crate::provider) Vec<u8>);

/// The elements that later items can no longer change, and whose encoding can therefore be cached.
pub(in crate::provider) struct ClosedElements<S> {
    /// One past the history index of the last item in the elements; see
    /// [`EncodeContext::items_to_encode`].
    pub(in crate::provider) end_index: usize,
    /// The encoder's state after encoding the elements.
    pub(in crate::provider) encoder_state: S,
    /// The newly encoded elements, which follow the elements that are already cached.
    pub(in crate::provider) elements: JsonElements,
}

/// The array that contains the items in the request body.
pub(in crate::provider) struct JsonArray<S> {
    /// The name of the array's field, which is the last field in the body.
    pub(in crate::provider) name: &'static str,
    /// The elements that precede all items.
    pub(in crate::provider) leading_elements: JsonElements,
    /// The newly encoded elements that later items can no longer change.
    pub(in crate::provider) closed_elements: Option<ClosedElements<S>>,
    /// The elements that later items may still change.
    pub(in crate::provider) remaining_elements: JsonElements,
    /// An offset from the end of the leading elements, and the bytes to insert at that offset.
    pub(in crate::provider) insertion: Option<(usize, Vec<u8>)>,
}

impl<S, E> EncodeContext<S, E>
where
    S: Any + Send + Sync,
    E: Clone + PartialEq + Any + Send + Sync,
{
    pub(in crate::provider) fn from_request(
        request: &Request,
        wire: &'static str,
        model: &str,
        extra: E,
    ) -> Self {
        let unsupported_part = UnsupportedPart::in_user_messages(&request.options);
        let key = CacheKey { wire, model: model.to_owned(), unsupported_part, extra };
        let settled = request.context.settled();
        let is_input =
            |item: &&Item| matches!(item.kind, ItemKind::User { .. } | ItemKind::System { .. });
        let new_input = || settled.newest_first().take_while(is_input);
        let earlier_entries = settled.len() - new_input().count();
        // A new message with media was perhaps encoded when it was not new, with a description of
        // the media. Such an encoding is not used: the message is checked again.
        let may_be_refused = unsupported_part == UnsupportedPart::Refused
            && new_input()
                .any(|item| matches!(&item.kind, ItemKind::User { content } if has_media(content)));
        let cacheable_entries = if may_be_refused { earlier_entries } else { settled.len() };
        let piece = settled.cached_encoding(&key, cacheable_entries);
        let known = piece.as_ref().and_then(|piece| piece.encoder_state::<CachedPrefix<S>>());
        let (leading, begun) = match (known, &piece) {
            (Some(known), Some(piece)) => (Arc::clone(&known.leading_system), piece.len()),
            (_, _) => leading_system_items(&settled),
        };
        let stable = leading.append_to(&request.system.stable);
        let volatile = request.system.volatile.clone();
        let state = PhantomData;
        Self {
            key,
            settled_history: settled,
            stable_system: stable,
            volatile_system: volatile,
            leading_system: leading,
            done_entries: begun,
            earlier_entries,
            encoded_chunk: piece,
            state,
        }
    }

    /// Discards the cached encoding, so that encoding starts with the first item.
    pub(in crate::provider) fn restart(self) -> Self {
        let (_, begun) = leading_system_items(&self.settled_history);
        Self { encoded_chunk: None, done_entries: begun, ..self }
    }

    pub(in crate::provider) fn stable_system(&self) -> &SharedText {
        &self.stable_system
    }

    pub(in crate::provider) fn volatile_system(&self) -> &str {
        &self.volatile_system
    }

    /// Returns how unsupported parts of the user message before the index `at` are handled. In
    /// earlier messages, they are always described: such a message cannot be corrected, and if it
    /// were refused, the conversation could not continue with this model.
    pub(in crate::provider) fn unsupported_part(&self, at: usize) -> UnsupportedPart {
        match at <= self.earlier_entries {
            true => UnsupportedPart::Described,
            false => self.key.unsupported_part,
        }
    }

    /// Returns the encoder's state after the already encoded items, if any.
    pub(in crate::provider) fn encoder_state(&self) -> Option<&S> {
        let known = self.encoded_chunk.as_ref()?.encoder_state::<CachedPrefix<S>>()?;
        Some(&known.encoder_state)
    }

    /// Checks that the request is not empty: either `is_empty` is false, or some items are already
    /// encoded. `element` is the word that the error message uses for an element.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if there is nothing to send.
    pub(in crate::provider) fn ensure_not_empty(
        &self,
        is_empty: bool,
        element: &str,
    ) -> Result<(), Error> {
        if !is_empty || self.encoded_len() > 0 {
            return Ok(());
        }
        let message = format!("there is nothing to send: every {element} is empty");
        Err(Error::new(ErrorKind::InvalidRequest, message))
    }

    /// Checks that the request contains anything other than instructions. Some servers never answer
    /// a request that contains nothing else.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the context contains
    /// neither a message nor a call.
    pub(in crate::provider) fn ensure_not_only_instructions(&self) -> Result<(), Error> {
        // The whole context is searched, since the result must not depend on what is cached. The
        // first message is usually among the first items.
        let is_message = |item: &Item| match &item.kind {
            ItemKind::User { .. } | ItemKind::ToolCall(_) | ItemKind::ToolResult(_) => true,
            ItemKind::Text { text } => !text.is_empty(),
            ItemKind::System { .. } | ItemKind::Reasoning { .. } | ItemKind::Other => false,
        };
        if self.settled_history.iter().any(|item| !item.tombstone && is_message(item)) {
            return Ok(());
        }
        let message = "there is nothing to answer: the request contains only instructions, and this \
                       server answers only if there is another message";
        Err(Error::new(ErrorKind::InvalidRequest, message))
    }

    /// Returns the number of bytes that are already encoded.
    pub(in crate::provider) fn encoded_len(&self) -> usize {
        self.encoded_chunk.as_ref().map_or(0, |piece| piece.total_byte_len())
    }

    /// Returns the non-blank parts of the system prompt, stable part first.
    pub(in crate::provider) fn system_zones(&self) -> impl Iterator<Item = SystemZone<'_>> {
        let zones =
            [SystemZone::Stable(&self.stable_system), SystemZone::Volatile(&self.volatile_system)];
        zones.into_iter().filter(|zone| !zone.is_blank())
    }

    /// Returns the items to encode, in order, each paired with the number of history items up to
    /// and including it.
    pub(in crate::provider) fn items_to_encode(&self) -> impl Iterator<Item = (usize, &Item)> {
        #[cfg(test)]
        tests::count(self.peek_items_to_encode().count());
        self.settled_history.entries_after(self.done_entries).filter(|(_, item)| !item.tombstone)
    }

    /// Returns the same items as [`items_to_encode`](Self::items_to_encode), without their indices,
    /// for an encoder that must look ahead.
    pub(in crate::provider) fn peek_items_to_encode(&self) -> impl Iterator<Item = &Item> {
        let items = self.settled_history.entries_after(self.done_entries).map(|(_, item)| item);
        items.filter(|item| !item.tombstone)
    }

    /// Writes the request body, including the array of items, and caches the elements that can no
    /// longer change.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if the body cannot be
    /// serialized as JSON.
    pub(in crate::provider) fn write_body(
        &self,
        body: ObjectWriter,
        array: JsonArray<S>,
        extra: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<ChunkedBytes, Error> {
        let closed = array.closed_elements.as_ref().map_or(0, |closed| closed.elements.0.len());
        let size = closed + array.remaining_elements.0.len();
        let fill = |out: &mut ChunkedBytes| {
            out.extend_from_slice(&array.leading_elements.0);
            let begins = out.len();
            // The additional 64 bytes leave room for the end of the body and for an insertion.
            match &self.encoded_chunk {
                Some(piece) => piece.append_to(out, size + 64),
                None => out.reserve(size + 64),
            }
            if let Some(closed) = &array.closed_elements {
                out.extend_from_slice(&closed.elements.0);
            }
            out.extend_from_slice(&array.remaining_elements.0);
            if let Some((at, mark)) = &array.insertion {
                out.insert(begins + at, mark);
            }
            out.pop_if(b',');
        };
        let bytes = body.into_bytes_with_array(array.name, fill, extra)?;
        if let Some(ClosedElements { end_index: at, encoder_state: state, elements }) =
            array.closed_elements
            && at > self.done_entries
        {
            let known = CachedPrefix {
                leading_system: Arc::clone(&self.leading_system),
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

impl LeadingSystem {
    /// Appends the texts to the stable part of a request's system prompt.
    fn append_to(&self, stable: &SharedText) -> SharedText {
        if self.texts.is_empty() {
            return stable.clone();
        }
        let append = || {
            let mut appended = stable.to_string();
            for text in &self.texts {
                if !appended.is_empty() {
                    appended.push_str("\n\n");
                }
                appended.push_str(text);
            }
            SharedText::from(appended)
        };
        let (known, appended) = self.appended.get_or_init(|| (stable.clone(), append()));
        if known == stable { appended.clone() } else { append() }
    }
}

impl<'a> SystemZone<'a> {
    pub(in crate::provider) fn as_str(self) -> &'a str {
        match self {
            Self::Stable(text) => text,
            Self::Volatile(text) => text,
        }
    }

    pub(in crate::provider) fn is_blank(self) -> bool {
        self.as_str().trim().is_empty()
    }
}

impl Serialize for SystemZone<'_> {
    fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        match self {
            Self::Stable(text) => text.to_json().serialize(serializer),
            Self::Volatile(text) => text.serialize(serializer),
        }
    }
}

impl<S> JsonArray<S> {
    /// Creates an empty array.
    pub(in crate::provider) fn new(name: &'static str) -> Self {
        let (front, rest) = (JsonElements::default(), JsonElements::default());
        Self {
            name,
            leading_elements: front,
            closed_elements: None,
            remaining_elements: rest,
            insertion: None,
        }
    }

    /// Creates an array from elements. `closed` is `(end_index, count, encoder_state)`, where
    /// `count` is the number of elements at the start of the array that can no longer change.
    pub(in crate::provider) fn from_elements<T: Serialize>(
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

    /// Returns whether the array contains no newly encoded elements.
    pub(in crate::provider) fn is_empty(&self) -> bool {
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

    /// Encodes an element and appends it.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if the element cannot
    /// be serialized as JSON.
    pub(in crate::provider) fn push(&mut self, element: &impl Serialize) -> Result<(), Error> {
        if self.0.is_empty() {
            self.0.reserve(512);
        }
        serde_json::to_writer(&mut self.0, element).map_err(serialization_error)?;
        self.0.push(b',');
        Ok(())
    }
}

/// Returns the texts of the system items at the start of a history, and the number of history
/// entries that contain them.
fn leading_system_items(settled: &History) -> (Arc<LeadingSystem>, usize) {
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
    (Arc::new(LeadingSystem { texts: texts.into(), appended: OnceLock::new() }), begun)
}

#[cfg(test)]
mod tests;
