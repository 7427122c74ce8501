//! The ids of calls that clients see.

/// Returns the id that a client sees for a call of a response.
///
/// If the agent's provider assigns no ids, calls are numbered within the history. A client that
/// leaves out its earlier messages would receive the same id twice, so the id of the response
/// becomes a part of it.
pub(crate) fn client_call_id(call_id: &str, response: &str) -> String {
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'_';
    match call_id.strip_prefix("call_") {
        Some(numbers) if numbers.bytes().all(is_number) => format!("call_{response}_{numbers}"),
        _ => call_id.to_owned(),
    }
}
