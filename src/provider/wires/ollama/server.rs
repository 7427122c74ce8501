//! The server side of Ollama's `/api/chat` endpoint,
//! <https://docs.ollama.com/api/chat>.

use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::item::StopReason;
use crate::provider::codec::content_delta::ContentDelta;
use crate::provider::server::{
    BufferedCall, Frame, FrameFormat, ServerWire, TEXT_MARK, TextTemplate, TurnStart,
    UnsupportedContent, WireWriter, WriterOutput, default_status, message_with_phrase,
};
use crate::usage::Usage;

pub(in crate::provider) const SERVER_WIRE: ServerWire = ServerWire {
    format: |_| FrameFormat::JSON_LINES,
    // Ollama's clients parse each line, empty ones too.
    ping: |_| {
        let message = json!({ "role": "assistant", "content": "" });
        let created_at = rfc3339_date(0);
        let line =
            json!({ "model": "", "created_at": created_at, "message": message, "done": false });
        Some(Frame::new(None, &line))
    },
    status: |kind| match kind {
        // The error body contains no code that distinguishes this error from too many requests.
        ErrorKind::Billing => 402,
        kind => default_status(kind),
    },
    ..ServerWire::new(
        super::PROVIDER_NAME,
        LineWriter::start,
        |error, _| json!({ "error": message_with_phrase(error, error_phrase(error.kind())) }),
    )
};

struct LineWriter {
    out: WriterOutput,
    model: String,
    created_at: String,
    open_call: BufferedCall,
}

impl LineWriter {
    #[expect(clippy::needless_pass_by_value, reason = "other wires keep the function that signs")]
    fn start(start: TurnStart<'_>) -> Box<dyn WireWriter> {
        Box::new(Self {
            out: WriterOutput::default(),
            model: start.model.to_owned(),
            created_at: rfc3339_date(start.created_at),
            open_call: BufferedCall::default(),
        })
    }

    /// Writes a line whose message has the field `field` with a text.
    fn write_text(&mut self, field: &'static str, text: &str) {
        let template = self.out.take_template((field, 0)).unwrap_or_else(|| {
            let mut line = self.line_json(false);
            line["message"][field] = TEXT_MARK.into();
            TextTemplate::of(Frame::new(None, &line))
        });
        self.out.push_text((field, 0), template, text, 0);
    }

    /// Writes a line whose message has the field `field` with the value `value`.
    fn write_message_field(&mut self, field: &str, value: Value) {
        let mut line = self.line_json(false);
        line["message"][field] = value;
        self.out.push(Frame::new(None, &line));
    }

    fn line_json(&self, done: bool) -> Value {
        json!({
            "model": self.model,
            "created_at": self.created_at,
            "message": { "role": "assistant", "content": "" },
            "done": done,
        })
    }
}

impl WireWriter for LineWriter {
    fn output(&mut self) -> &mut WriterOutput {
        &mut self.out
    }

    fn continue_text(&mut self, _index: u32, _text: &str) -> Option<usize> {
        self.out.continues(("content", 0)).then_some(0)
    }

    fn write(&mut self, _index: u32, delta: ContentDelta) -> Result<(), UnsupportedContent> {
        match delta {
            ContentDelta::Text(piece) => self.write_text("content", &piece),
            ContentDelta::Reasoning(_, piece) => self.write_text("thinking", &piece),
            ContentDelta::Refusal(_) => return Err("a refusal"),
            ContentDelta::Signature(..) => return Err("a signature"),
            ContentDelta::HiddenReasoning(_) => return Err("hidden reasoning"),
            ContentDelta::CallStart { call_id, name } => {
                let mut call = json!({ "function": { "name": name } });
                // Older servers do not assign ids to calls.
                if !call_id.is_empty() {
                    call["id"] = call_id.into();
                }
                self.open_call.start(call);
            }
            ContentDelta::CallArgs(piece) => self.open_call.push(&piece),
            ContentDelta::CallEnd => {
                if let Some((mut call, arguments)) = self.open_call.end()? {
                    call["function"]["arguments"] = arguments;
                    self.write_message_field("tool_calls", json!([call]));
                }
            }
        }
        Ok(())
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), UnsupportedContent> {
        self.open_call.check_ended()?;
        let mut line = self.line_json(true);
        line["done_reason"] = match reason {
            // The API has no separate stop reason for tool calls.
            StopReason::Stop | StopReason::ToolCalls => "stop",
            StopReason::MaxTokens => "length",
            StopReason::Other(raw) => raw,
            StopReason::Refusal => return Err("a refusal"),
            StopReason::Pause => return Err("a pause"),
            StopReason::ContentFilter => return Err("a content filter"),
            StopReason::ContextWindow => return Err("the end of the context window"),
            StopReason::Interrupted => return Err("an interrupted turn"),
        }
        .into();
        // Zero counts and durations are omitted.
        for (name, tokens) in [
            ("prompt_eval_count", usage.input_tokens),
            ("prompt_eval_cached_count", usage.cache_read_input_tokens),
            ("eval_count", usage.output_tokens),
        ] {
            if tokens > 0 {
                line[name] = tokens.into();
            }
        }
        self.out.push(Frame::new(None, &line));
        Ok(())
    }
}

/// Returns the phrase in an error's message by which clients recognize the kind of the error. The
/// body of an error response contains only the message.
fn error_phrase(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ContextWindow => "exceeded max context length",
        ErrorKind::Overloaded => "server busy",
        ErrorKind::RateLimited => "too many requests",
        ErrorKind::Timeout => "request timed out",
        _ => "",
    }
}

/// Returns a time in seconds since 1970 as an RFC 3339 date, such as `2023-11-14T22:13:20Z`.
fn rfc3339_date(seconds: u64) -> String {
    // The algorithm `civil_from_days` of Howard Hinnant,
    // <https://howardhinnant.github.io/date_algorithms.html>. Years start in March.
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..=9 => (year, month + 3),
        _ => (year + 1, month - 9),
    };
    let (hours, minutes, seconds) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z", era * 400 + year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_a_date() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339_date(seconds), date);
        }
    }
}
