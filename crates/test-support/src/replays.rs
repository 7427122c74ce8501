//! Records every run of a test suite, and replays it when it has ended: the events are the same,
//! one by one, and the requests are the same bytes on every wire.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt, StreamExt};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use turnstream::replay::{RecordedRun, Recorder, Recording, ReplayMismatch, ReplayRun};
use turnstream::{Agent, ErrorKind, Event, Request};

static REPLAYED_RUNS: AtomicUsize = AtomicUsize::new(0);
static REPLAYED_REQUESTS: AtomicUsize = AtomicUsize::new(0);
static SEEN_AGENTS: AtomicUsize = AtomicUsize::new(0);

/// A recorder that replays every run when it is dropped.
pub fn replaying_recorder() -> &'static Recorder {
    static RECORDER: LazyLock<Recorder> = LazyLock::new(|| {
        Recorder::to_callback(|run| check_replay(&run, run.recording.replay(&run.agent)))
    });
    &RECORDER
}

/// Replays the runs of one agent in `n`, in tests with too many runs to replay all of them.
pub fn record_one_in(n: usize, agent: Agent) -> Agent {
    match SEEN_AGENTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(n) {
        true => agent.with_recorder(replaying_recorder()),
        false => agent,
    }
}

/// Replays a recorded run, and checks that the replay equals it.
#[track_caller]
pub fn check_replay(run: &RecordedRun, rerun: ReplayRun) {
    // If the test has failed already, do not panic again.
    if std::thread::panicking() {
        return;
    }
    let requests = replay_requests(&run.recording, rerun);
    assert_eq!(requests.len(), run.requests.len(), "the requests of {:?}", run.recording);
    for (recorded, played) in run.requests.iter().zip(&requests) {
        assert!(
            encode_on_every_wire(recorded) == encode_on_every_wire(played),
            "{recorded:?}\n\n{played:?}"
        );
    }
    let runs = REPLAYED_RUNS.fetch_add(1, Ordering::Relaxed) + 1;
    let all = REPLAYED_REQUESTS.fetch_add(requests.len(), Ordering::Relaxed) + requests.len();
    println!("replayed: {runs} runs, {all} requests");
}

/// Replays a recording to its end, which must equal the recorded run's, and returns its requests.
#[track_caller]
fn replay_requests(recording: &Recording, mut rerun: ReplayRun) -> Vec<Request> {
    let mut recorded = recording.events();
    let error = recording.events().last().and_then(Event::outcome).and_then(|it| it.error.clone());
    let mut failure = None;
    loop {
        // A replay never waits.
        let Some(polled) = rerun.next().now_or_never() else {
            panic!("the replay waits for {:?}", recorded.next());
        };
        let Some(event) = polled else { break };
        match event {
            Ok(event) => assert_eq!(Some(&event), recorded.next()),
            Err(error) if error.kind() == ErrorKind::ReplayMismatch => {
                panic!("{error}: {:#?}", mismatch_details(&error));
            }
            Err(error) => assert!(failure.replace(error).is_none(), "a second error"),
        }
    }
    assert_eq!(recorded.next(), None, "the replay ends early");
    assert_eq!(failure, error, "the replay of a failed run ends with its error");
    assert_eq!(rerun.next().now_or_never().map(|it| it.is_none()), Some(true));
    rerun.requests()
}

fn mismatch_details(error: &turnstream::Error) -> Option<String> {
    let mismatch = error.find_source::<ReplayMismatch>()?;
    let short =
        |json: &turnstream::item::RawJson| json.as_str().chars().take(600).collect::<String>();
    Some(format!("recorded {}\nreplayed {}", short(&mismatch.recorded), short(&mismatch.replayed)))
}

/// The body that each wire sends for a request, or the error.
fn encode_on_every_wire(request: &Request) -> [Result<Vec<u8>, String>; 5] {
    [
        anthropic::encode(request, "m"),
        openai_chat::encode(request, "m", &Dialect::OPENAI),
        openai_responses::encode(request, "m"),
        gemini::encode(request, "m"),
        ollama::encode(request, "m", &ollama::Chat::default()),
    ]
    .map(|encoded| encoded.map_err(|error| error.to_string()))
}
