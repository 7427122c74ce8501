//! The context of a single span, in the form in which it is sent to other processes.

/// The maximum number of bytes of a `tracestate` that is sent on.
const MAX_TRACE_STATE_BYTES: usize = 512;

/// The context of a span in the format of W3C Trace Context: the values of the headers
/// `traceparent` and `tracestate`. They are specified at <https://www.w3.org/TR/trace-context/>.
///
/// ```
/// use turnstream::propagation::TraceContext;
///
/// let value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context = TraceContext::parse(value, Some("vendor=1")).unwrap();
/// assert_eq!(context.traceparent(), value);
/// assert_eq!(context.tracestate(), Some("vendor=1"));
/// assert_eq!(TraceContext::parse("not a context", None), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    traceparent: String,
    tracestate: Option<String>,
}

impl TraceContext {
    /// Parses the values of the two headers, for example those of a server's request. Returns
    /// `None` if `traceparent` is invalid. An invalid or very long `tracestate` is dropped.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let traceparent = traceparent.trim();
        let tracestate = tracestate.map(str::trim).filter(|it| is_trace_state(it));
        is_trace_parent(traceparent).then(|| Self {
            traceparent: traceparent.to_owned(),
            tracestate: tracestate.map(str::to_owned),
        })
    }

    /// Returns the value of the header `traceparent`: the version, the trace id, the span id and
    /// the flags, as hexadecimal digits with hyphens between them.
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// Returns the value of the header `tracestate`, if any.
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// Returns the names and values of the headers, to be added to a request that continues the
    /// trace.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.tracestate().map(|state| ("tracestate", state));
        std::iter::once(("traceparent", self.traceparent())).chain(state)
    }
}

/// Returns whether a value consists of a version, a trace id, a span id and flags, as lower-case
/// hexadecimal digits. Values of a later version may have more fields.
fn is_trace_parent(value: &str) -> bool {
    let mut fields = value.split('-');
    let mut next_field = |digits: usize| {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        fields.next().filter(|field| field.len() == digits && field.bytes().all(is_hex))
    };
    let (Some(version), Some(trace), Some(span), Some(_flags)) =
        (next_field(2), next_field(32), next_field(16), next_field(2))
    else {
        return false;
    };
    let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
    let has_more = fields.next().is_some();
    let is_printable = value.bytes().all(|byte| byte.is_ascii_graphic());
    version != "ff"
        && (version != "00" || !has_more)
        && is_printable
        && !is_zero(trace)
        && !is_zero(span)
}

fn is_trace_state(value: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    (1..=MAX_TRACE_STATE_BYTES).contains(&value.len()) && value.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn an_invalid_traceparent_is_refused() {
        for invalid in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-a\r\nx: y",
        ] {
            assert_eq!(TraceContext::parse(invalid, None), None, "{invalid:?}");
        }
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert!(TraceContext::parse(later, None).is_some());
    }

    #[test]
    fn an_invalid_tracestate_is_dropped() {
        let long = "x".repeat(MAX_TRACE_STATE_BYTES + 1);
        for invalid in ["", "a=1\r\nhost: b", long.as_str()] {
            let context = TraceContext::parse(VALID, Some(invalid)).unwrap();
            assert_eq!(context.tracestate(), None, "{invalid:?}");
            assert_eq!(context.headers().collect::<Vec<_>>(), [("traceparent", VALID)]);
        }
    }
}
