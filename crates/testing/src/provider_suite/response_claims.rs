//! Checks that a turn correctly represents the server's answer.

use futures::StreamExt;
use serde_json::Value;
use turnstream::item::{Item, ItemKind, StopReason};
use turnstream::provider::{Piece, Provider};
use turnstream::turn::{PartialTurn, TurnEvent};
use turnstream::usage::Usage;

use crate::http::BodyPart;
use crate::provider_suite::report::{UnmetClaim, ensure_that};
use crate::provider_suite::sample_requests::{
    ARGUMENT_VALUE, CALL_ID, call_piece, cut_positions, read_turn, read_turn_of_pieces,
    request_about, response_body_or_skip, sample_history, sample_tool, send_and_read, stop_piece,
    text, text_delta, tool_call_response, tool_calls_stop_piece,
};
use crate::provider_suite::server::{SuiteServer, bytes_part, stream_response, with_timeout};
use crate::provider_suite::subject::Subject;

/// Strings that are hard to decode, because they contain multi-byte characters or JSON escapes.
const TRICKY_TEXTS: [&str; 3] =
    ["Grüße, 世界 🦀 ", "\"quoted\" \\ and\n\ttabbed, ", "data: [DONE]"];

/// Parses a call's arguments as JSON.
fn parsed_arguments(arguments: &str) -> Option<Value> {
    serde_json::from_str(arguments).ok()
}

/// Returns a response body that contains text, reasoning, tool calls and usage, and omits what the
/// wire format cannot represent.
fn rich_response_body<S: Subject>(subject: &S) -> Result<Vec<u8>, UnmetClaim> {
    let reasoning = [Piece::Reasoning("Hm. ".to_owned())];
    let texts = [text("Hello "), text("thére.")];
    let usage = [Piece::Usage(Usage { input_tokens: 11, output_tokens: 7, ..Usage::default() })];
    let calls = [
        call_piece(CALL_ID, ARGUMENT_VALUE),
        call_piece("call_suite2", "another"),
        tool_calls_stop_piece(),
    ];
    let end = [stop_piece()];
    let candidates: [&[&[Piece]]; 6] = [
        &[&reasoning, &texts, &usage, &calls],
        &[&reasoning, &texts, &calls],
        &[&texts, &usage, &calls],
        &[&texts, &calls],
        &[&texts, &usage, &end],
        &[&texts, &end],
    ];
    let answers =
        candidates.iter().map(|pieces| response_body_or_skip(subject, "text", &pieces.concat()));
    answers
        .reduce(Result::or)
        .unwrap_or_else(|| response_body_or_skip(subject, "text", &[stop_piece()]))
}

/// Returns the content of the items, leaving out items that only their provider reads.
fn item_kinds(items: &[Item]) -> Vec<&ItemKind> {
    items.iter().map(|item| &item.kind).filter(|kind| !matches!(kind, ItemKind::Other)).collect()
}

/// Checks that a complete answer produces a turn with exactly one `TurnComplete`, as its last
/// event.
pub(super) async fn a_whole_answer_is_one_complete_turn<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let texts = [text("Hello "), text("there."), stop_piece()];
    let turn = read_turn_of_pieces(subject, "text", &texts).await?.turn()?;
    ensure_that(turn.text() == "Hello there.", || format!("the text is {:?}", turn.text()))
}

/// Checks that a piece of text arrives before the server has sent the rest of the answer.
pub(super) async fn text_arrives_while_the_server_still_sends<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let begun = response_body_or_skip(subject, "text", &[text("Hello "), text("there.")])?;
    let server = SuiteServer::start_repeating(stream_response(
        subject,
        vec![bytes_part(&begun), BodyPart::Hang],
    ))
    .await?;
    let mut turn = server.provider(subject).stream_turn(request_about(sample_history()));
    loop {
        match with_timeout("text that the server has sent", turn.next()).await? {
            Some(Ok(event)) if text_delta(&event).is_some() => return Ok(()),
            Some(Ok(TurnEvent::TurnComplete { .. })) | None => {
                return Err(UnmetClaim::Failed(
                    "the turn ends while the server still sends".to_owned(),
                ));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(UnmetClaim::Failed(format!("an error: {error:#}"))),
        }
    }
}

/// Checks that folding a turn's events yields the turn's usage and, except for provider data, the
/// turn's items.
pub(super) async fn a_turn_is_the_sum_of_its_events<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let body = rich_response_body(subject)?;
    let read = send_and_read(subject, stream_response(subject, vec![bytes_part(&body)])).await?;
    let mut sum = PartialTurn::default();
    read.events.iter().for_each(|event| sum.absorb(event));
    let turn = read.turn()?;
    let (summed, whole) = (sum.items(), turn.items());
    ensure_that(item_kinds(&summed) == item_kinds(whole), || {
        format!("the events are {:?}, the turn is {:?}", item_kinds(&summed), item_kinds(whole))
    })?;
    ensure_that(sum.usage() == turn.usage(), || {
        format!("the events count {:?}, the turn {:?}", sum.usage(), turn.usage())
    })
}

/// Checks that text arrives exactly as it was sent, whatever characters it contains.
pub(super) async fn text_comes_as_the_server_wrote_it<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let mut pieces: Vec<Piece> = TRICKY_TEXTS.iter().map(|piece| text(piece)).collect();
    pieces.push(stop_piece());
    let read = read_turn_of_pieces(subject, "text", &pieces).await?;
    let deltas = read.text();
    let turn = read.turn()?;
    for text in [deltas, turn.text()] {
        ensure_that(text == TRICKY_TEXTS.concat(), || {
            format!("{:?} came as {text:?}", TRICKY_TEXTS.concat())
        })?;
    }
    Ok(())
}

/// Checks that reasoning arrives as reasoning and text arrives as text.
pub(super) async fn reasoning_is_not_text<S: Subject>(subject: &S) -> Result<(), UnmetClaim> {
    let pieces = [Piece::Reasoning("Let me think.".to_owned()), text("Done."), stop_piece()];
    let turn = read_turn_of_pieces(subject, "reasoning", &pieces).await?.turn()?;
    let reasoning: String = turn
        .items()
        .iter()
        .filter_map(|item| match &item.kind {
            ItemKind::Reasoning { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    ensure_that(reasoning.trim() == "Let me think.", || format!("the reasoning is {reasoning:?}"))?;
    ensure_that(turn.text() == "Done.", || format!("the text is {:?}", turn.text()))
}

/// Checks that the turn is the same no matter whether the answer's bytes arrive one by one, in
/// small chunks, or in two parts. The answer is split in two at many different positions.
pub(super) async fn a_turn_does_not_depend_on_how_its_bytes_are_cut<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    /// The maximum size of a small chunk, in bytes.
    const MAX_PIECE: usize = 8;
    let body = rich_response_body(subject)?;
    let mut cuts = vec![vec![bytes_part(&body)]];
    cuts.extend((1..=MAX_PIECE).map(|size| body.chunks(size).map(bytes_part).collect()));
    cuts.extend(
        cut_positions(&body)
            .into_iter()
            .map(|at| vec![bytes_part(&body[..at]), bytes_part(&body[at..])]),
    );
    let count = cuts.len();
    let answers = cuts.into_iter().map(|parts| stream_response(subject, parts)).collect();
    let server = SuiteServer::start(answers).await?;
    let provider = server.provider(subject);
    let whole = read_turn(provider.stream_turn(request_about(sample_history()))).await?.turn()?;
    for _ in 1..count {
        let turn =
            read_turn(provider.stream_turn(request_about(sample_history()))).await?.turn()?;
        ensure_that(turn == whole, || {
            format!("{:?} is {:?} if its bytes are cut", whole.items(), turn.items())
        })?;
    }
    Ok(())
}

/// Checks that a call contains the name and the arguments that the server sent and, if the wire
/// format supports ids, the server's id.
pub(super) async fn a_call_comes_whole<S: Subject>(subject: &S) -> Result<(), UnmetClaim> {
    let body = response_body_or_skip(
        subject,
        "calls",
        &[call_piece(CALL_ID, ARGUMENT_VALUE), tool_calls_stop_piece()],
    )?;
    let has_ids = String::from_utf8_lossy(&body).contains(CALL_ID);
    let turn =
        send_and_read(subject, stream_response(subject, vec![bytes_part(&body)])).await?.turn()?;
    let calls: Vec<_> = turn.tool_calls().collect();
    let [found] = calls[..] else {
        return Err(UnmetClaim::Failed(format!("one call came as {calls:?}")));
    };
    let expected = serde_json::json!({ "word": ARGUMENT_VALUE });
    ensure_that(found.name == sample_tool().name, || format!("the name is {:?}", found.name))?;
    ensure_that(parsed_arguments(&found.arguments) == Some(expected), || {
        format!("the arguments are {:?}", found.arguments)
    })?;
    ensure_that(!has_ids || found.call_id == CALL_ID, || format!("the id is {:?}", found.call_id))?;
    ensure_that(turn.calls().veto().is_none(), || "the call may not run".to_owned())
}

/// Checks that two calls in a turn have different ids, even if the server gives both of them the
/// same id.
pub(super) async fn each_call_of_a_turn_has_an_id_of_its_own<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let doubled = [call_piece(CALL_ID, "one"), call_piece(CALL_ID, "two"), tool_calls_stop_piece()];
    let distinct =
        [call_piece(CALL_ID, "one"), call_piece("call_suite2", "two"), tool_calls_stop_piece()];
    for pieces in [distinct, doubled] {
        let turn = read_turn_of_pieces(subject, "two calls in one turn", &pieces).await?.turn()?;
        let calls: Vec<_> = turn.tool_calls().collect();
        let texts: Vec<_> = calls
            .iter()
            .map(|call| Some(parsed_arguments(&call.arguments)?["word"].as_str()?.to_owned()))
            .collect();
        ensure_that(texts == [Some("one".to_owned()), Some("two".to_owned())], || {
            format!("two calls came as {calls:?}")
        })?;
        let ids = [&calls[0].call_id, &calls[1].call_id];
        ensure_that(ids[0] != ids[1] && ids.iter().all(|id| !id.is_empty()), || {
            format!("the ids are {ids:?}")
        })?;
    }
    Ok(())
}

/// Checks that a call's id differs from the ids of all calls in the history, even if the server
/// repeats an id from the history.
pub(super) async fn no_call_has_an_id_of_the_history<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let server = SuiteServer::start_repeating(tool_call_response(subject)?).await?;
    let provider = server.provider(subject);
    let mut history = sample_history();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let turn = read_turn(provider.stream_turn(request_about(history.clone()))).await?.turn()?;
        for call in turn.tool_calls() {
            ensure_that(!ids.contains(&call.call_id), || {
                format!("{:?} is the id of two calls of the history", call.call_id)
            })?;
            ids.push(call.call_id.clone());
        }
        history.extend(turn.to_history_items());
        history = history.settled();
    }
    ensure_that(ids.len() == 3, || format!("three calls have the ids {ids:?}"))
}

/// Checks that the turn contains the stop reason that the server sent.
pub(super) async fn the_stop_reason_is_what_the_server_said<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    use StopReason::{ContentFilter, MaxTokens, Refusal, Stop};
    let mut checked = 0;
    for reason in [Stop, MaxTokens, ContentFilter, Refusal] {
        let pieces = [text("Hello."), Piece::Stop(reason.clone())];
        let turn = match read_turn_of_pieces(subject, "stop reasons", &pieces).await {
            Err(UnmetClaim::Skipped(_)) => continue,
            read => read?.turn()?,
        };
        let found = turn.stop_reason();
        ensure_that(*found == reason, || format!("`{reason:?}` came as `{found:?}`"))?;
        checked += 1;
    }
    match checked {
        0 | 1 => Err(UnmetClaim::Skipped("the wire has fewer than two stop reasons".to_owned())),
        _ => Ok(()),
    }
}

/// Checks that the turn contains the token counts that the server sent.
pub(super) async fn the_usage_is_what_the_server_counted<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let counted = Usage { input_tokens: 11, output_tokens: 7, ..Usage::default() };
    let pieces = [text("Hello."), Piece::Usage(counted), stop_piece()];
    let found = read_turn_of_pieces(subject, "usage", &pieces).await?.turn()?.usage();
    ensure_that(found == counted, || format!("{counted:?} came as {found:?}"))
}
