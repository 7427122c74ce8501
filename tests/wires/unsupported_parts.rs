//! Images and files that a wire cannot send: such input is refused before it is appended, or
//! replaced by a description, and never makes a conversation unusable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use serde_json::json;
use turnstream::event::EndReason;
use turnstream::item::{Content, Item, MediaSource, Part};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{
    Anthropic, Fallback, Ollama, OpenAiChat, Provider, Reply, Retry, Scripted,
};
use turnstream::replay::{Recorder, Recording};
use turnstream::request::Options;
use turnstream::session::{MemoryStore, Session, SessionState};
use turnstream::stream::TurnStream;
use turnstream::tool::{ToolSpec, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, History, Request, Tool};
use turnstream_testing::ModelServer;
use turnstream_testing::http::{HttpResponse, LoopbackServer};

use turnstream_test_support::buffer::SharedBuffer;

/// A provider, and a part that its wire cannot send.
struct Case {
    provider: Arc<dyn Provider>,
    part: Part,
    description: &'static str,
}

fn cases(server: &ModelServer) -> Vec<Case> {
    let pdf = || Part::file("application/pdf", b"%PDF-").with_name("report.pdf");
    let pdf_description = "[The file `report.pdf` (application/pdf) was omitted, because this model cannot receive it]";
    let chat = text_only_chat(&server.url());
    let ollama = || Ollama::new("m").with_base_url(server.url()).unwrap();
    let url = MediaSource::Url("https://a.example/a.png".into());
    vec![
        Case { provider: Arc::new(ollama()), part: pdf(), description: pdf_description },
        Case {
            provider: Arc::new(ollama()),
            part: Part::image("image/png", url),
            description: "[An image (image/png) was omitted, because this model cannot receive it]",
        },
        Case {
            provider: Arc::new(Anthropic::new("m").with_base_url(server.url()).unwrap()),
            part: Part::image("image/tiff", b"II*"),
            description: "[An image (image/tiff) was omitted, because this model cannot receive it]",
        },
        Case {
            provider: Arc::new(Anthropic::new("m").with_base_url(server.url()).unwrap()),
            part: Part::file("text/plain", b"\xff\xfe"),
            description: "[A file (text/plain) was omitted, because this model cannot receive it]",
        },
        Case { provider: Arc::new(chat), part: pdf(), description: pdf_description },
    ]
}

/// A provider in the dialect of Chat Completions that has no images and files.
fn text_only_chat(url: &str) -> OpenAiChat {
    OpenAiChat::new("m").with_base_url(url).unwrap().with_dialect(Dialect::MINIMAL)
}

fn conversation() -> History {
    History::from_items("h", [Item::user("Hi"), Item::text("Hello.")])
}

fn message_with(part: &Part) -> Content {
    vec!["What does it say?".into(), part.clone()].into()
}

fn items_of(history: &History) -> Vec<Item> {
    history.iter().cloned().collect()
}

#[tokio::test]
async fn input_that_a_wire_cannot_send_is_refused_before_it_is_appended() {
    let server = ModelServer::start(|_| Reply::text("Fine.")).await.unwrap();
    for Case { provider, part, .. } in cases(&server) {
        let already_sent = server.requests().len();
        let agent = Agent::new(Retry::new(Fallback::new(provider).or(Scripted::new(["Never."]))));
        let mut run = agent.run_from(conversation(), message_with(&part));
        let first = run.next().await.unwrap().unwrap();
        assert!(matches!(first, Event::Finished(_)), "{first:?}");
        let outcome = run.outcome().await;
        let error = outcome.error.clone().unwrap();
        let expected = [ErrorKind::Unsupported, ErrorKind::InvalidRequest];
        assert!(expected.contains(&error.kind()), "{error}");
        assert_eq!(outcome.reason, EndReason::ProviderError);
        assert_eq!(items_of(&outcome.history), items_of(&conversation()));
        assert!(outcome.new_items().is_empty() && outcome.turns == 0, "{outcome:?}");
        assert_eq!(server.requests().len(), already_sent);

        let next = agent.run_from(outcome.history, "Never mind.").outcome().await;
        assert_eq!((next.reason, &*next.text), (EndReason::Completed, "Fine."), "{next:?}");
    }
}

#[tokio::test]
async fn if_the_setting_says_so_a_part_that_a_wire_cannot_send_is_described_to_the_model() {
    let server = ModelServer::start(|_| Reply::text("Fine.")).await.unwrap();
    for Case { provider, part, description } in cases(&server) {
        let options = Options { omit_unsupported_parts: true, ..Options::default() };
        let agent = Agent::new(provider).with_options(options);
        let first = agent.run_from(conversation(), message_with(&part)).outcome().await;
        assert_eq!(first.reason, EndReason::Completed, "{first:?}");
        let sent = server.requests().last().unwrap().to_string();
        assert!(sent.contains(description), "{sent}");
        assert!(!sent.contains("data:"), "{sent}");
        // A later model may be able to receive the part.
        let kept = first.history.iter().any(|item| item.as_user() == Some(&message_with(&part)));
        assert!(kept, "{:?}", first.history);
        let second = agent.run_from(first.history, "Go on.").outcome().await;
        assert_eq!(second.reason, EndReason::Completed, "{second:?}");
    }
}

#[tokio::test]
async fn a_part_that_a_wire_cannot_send_in_a_tool_result_is_described_to_the_model() {
    let server = ModelServer::start(|asked| match asked.index % 3 {
        0 => Reply::new().call("read", json!({})),
        _ => Reply::text("Fine."),
    })
    .await
    .unwrap();
    for Case { provider, part, description } in cases(&server) {
        let content: Content = vec!["Page 1.".into(), part.clone()].into();
        let spec = ToolSpec::new("read", "Reads a file", json!({ "type": "object" }));
        let read = Tool::raw(spec, move |_, _| {
            let content = content.clone();
            async move { content }
        })
        .unwrap();
        let agent = Agent::new(provider).with_tools([read]);
        let first = agent.run("Read it.").outcome().await;
        assert_eq!(first.reason, EndReason::Completed, "{first:?}");
        let sent = server.requests().last().unwrap().to_string();
        assert!(sent.contains("Page 1.") && sent.contains(description), "{sent}");
        let second = agent.run_from(first.history, "Go on.").outcome().await;
        assert_eq!(second.reason, EndReason::Completed, "{second:?}");
    }
}

#[tokio::test]
async fn queued_input_that_a_wire_cannot_send_is_described_and_the_run_goes_on() {
    let server = ModelServer::start(|_| Reply::text("Fine.")).await.unwrap();
    for Case { provider, part, description } in cases(&server) {
        let run = Agent::new(provider).run("Hi");
        run.follow_up(message_with(&part)).unwrap();
        let outcome = run.outcome().await;
        assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 2), "{outcome:?}");
        let sent = server.requests().last().unwrap().to_string();
        assert!(sent.contains("What does it say?") && sent.contains(description), "{sent}");
    }
}

#[tokio::test]
async fn a_part_that_a_wire_cannot_send_in_an_earlier_message_is_described_to_the_model() {
    let server = ModelServer::start(|_| Reply::text("Fine.")).await.unwrap();
    for Case { provider, part, description } in cases(&server) {
        let items = [Item::user(message_with(&part)), Item::text("I see.")];
        let outcome = Agent::new(provider)
            .run_from(History::from_items("h", items.clone()), "And now?")
            .outcome()
            .await;
        assert_eq!(outcome.reason, EndReason::Completed, "{outcome:?}");
        assert_eq!(items_of(&outcome.history)[..2], items);
        let sent = server.requests().last().unwrap().to_string();
        assert!(sent.contains(description) && sent.contains("And now?"), "{sent}");
    }
}

/// A server that accepts only text may not accept a list of parts either.
#[tokio::test]
async fn a_described_part_does_not_turn_text_into_a_list_of_parts_on_chat_completions() {
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    let model = text_only_chat(&server.url()).without_retries();
    let options = Options { omit_unsupported_parts: true, ..Options::default() };
    let image = Part::image("image/png", b"\x89PNG");
    let input: Content = vec!["Look!".into(), image, "What ".into(), "is it?".into()].into();
    Agent::new(model).with_options(options).run(input).outcome().await;
    let body: serde_json::Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    let text = "Look!\n\n[An image (image/png) was omitted, because this model cannot receive it]\n\n\
        What is it?";
    assert_eq!(body["messages"][0]["content"], text);
}

/// An agent whose tool `delete` requires approval, and whose model cannot send a PDF.
fn agent_with_approvals() -> Agent {
    let model =
        PickyProvider::new([Reply::new().call("delete", json!({})), Reply::text("It is gone.")]);
    let spec = ToolSpec::new("delete", "Deletes a file", json!({ "type": "object" }));
    let delete = Tool::raw(spec, |_, _| async { "deleted" }).unwrap().requires_approval();
    Agent::new(model).with_tools([delete])
}

/// A provider whose answers to [`Provider::check_parts`] change.
#[derive(Clone)]
struct PickyProvider {
    model: Scripted,
    accepts_files: Arc<AtomicBool>,
}

impl PickyProvider {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self { model: Scripted::new(replies), accepts_files: Arc::default() }
    }
}

impl Provider for PickyProvider {
    fn stream_turn(&self, request: Request) -> TurnStream {
        self.model.stream_turn(request)
    }

    fn model(&self) -> &str {
        self.model.model()
    }

    fn check_parts(&self, _: &[Part]) -> Result<(), Error> {
        match self.accepts_files.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Unsupported, "no files")),
        }
    }
}

fn pdf() -> Content {
    vec!["Look!".into(), Part::file("application/pdf", b"%PDF-")].into()
}

#[tokio::test]
async fn refused_input_leaves_pending_calls_pending() {
    let agent = agent_with_approvals();
    let pending = agent.run("Delete it.").outcome().await;
    assert_eq!(pending.reason, EndReason::Pending);
    let refused = agent.run_from(pending.history.clone(), pdf()).outcome().await;
    assert_eq!(refused.error.unwrap().kind(), ErrorKind::Unsupported);
    assert_eq!(items_of(&refused.history), items_of(&pending.history));
    let verdicts = pending.pending.into_iter().map(|call| (call, Verdict::Approve));
    let resumed = agent.resume(refused.history, verdicts).unwrap().outcome().await;
    assert_eq!((resumed.reason, &*resumed.text), (EndReason::Completed, "It is gone."));
}

#[tokio::test]
async fn refused_input_leaves_the_pending_calls_of_a_session_pending() {
    let agent = agent_with_approvals();
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    session.run(&agent, "Delete it.").await.unwrap().outcome().await.unwrap();
    let before = (session.state(), session.entries().await.unwrap());
    let refused = session.run(&agent, pdf()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!((session.state(), session.entries().await.unwrap()), before);
    let SessionState::Pending { calls } = before.0 else { panic!("nothing is pending") };
    let verdicts = calls.into_iter().map(|call| (call, Verdict::Approve));
    let outcome = session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.text, "It is gone.");
}

#[tokio::test]
async fn a_replay_refuses_or_accepts_input_as_its_recording_did() {
    for accepts_files in [false, true] {
        let model = PickyProvider::new([Reply::text("Fine.")]);
        model.accepts_files.store(accepts_files, Ordering::Relaxed);
        let agent = Agent::new(model.clone());
        let buffer = SharedBuffer::new();
        let recorder = Recorder::to_writer(buffer.clone());
        let original: Vec<_> = agent.clone().with_recorder(&recorder).run(pdf()).collect().await;
        assert_eq!(original.iter().any(Result::is_err), !accepts_files);
        model.accepts_files.store(!accepts_files, Ordering::Relaxed);
        let recording = Recording::from_text(&buffer.text()).unwrap();
        let replayed: Vec<_> = recording.replay(&agent).collect().await;
        assert_eq!(replayed, original);
    }
}
