//! The example `worker` as a process that is stopped by signals: nothing is lost, no call runs
//! twice, and the next start continues the jobs.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use turnstream::Item;
use turnstream::provider::Reply;
use turnstream::session::{JsonLinesStore, Session, SessionState};
use turnstream_test_support::programs::example_program;
use turnstream_testing::http::{BodyPart, BodyStream, HttpRequest, HttpResponse, LoopbackServer};
use turnstream_testing::{Answer, Wire};

/// The time limit for each wait.
const LIMIT: Duration = Duration::from_secs(20);

const JOBS: [&str; 4] = ["a", "b", "c", "d"];

/// A turn of a job: its first turn calls the tool, and its second turn answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum JobTurn {
    Call,
    Answer,
}

/// A model that holds back the answers to one of the turns until the test releases them.
struct HeldModel {
    server: LoopbackServer,
    /// The jobs and turns of the requests, in the order of their arrival.
    requests: mpsc::UnboundedReceiver<(String, JobTurn)>,
    release: watch::Sender<bool>,
}

impl HeldModel {
    async fn start(held: Option<JobTurn>) -> Self {
        let (release, released) = watch::channel(false);
        let (sender, requests) = mpsc::unbounded_channel();
        let server = LoopbackServer::start(move |request: HttpRequest| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let messages = body["messages"].as_array().unwrap();
            let prompt = |message: &Value| message["role"] == "user";
            let job = messages.iter().find(|it| prompt(it)).unwrap()["content"].to_string();
            let job = job.trim_matches('"').to_owned();
            let (turn, reply) = match messages.last().unwrap()["role"] == "tool" {
                true => (JobTurn::Answer, Reply::text("Done.")),
                false => (JobTurn::Call, Reply::new().call("report", json!({ "text": job }))),
            };
            sender.send((job, turn)).unwrap();
            let bytes = Bytes::from(Answer::reply(reply).to_bytes(Wire::OpenAiChat));
            let mut released = released.clone();
            let body = BodyStream::new(stream::once(async move {
                if held == Some(turn) {
                    drop(released.wait_for(|released| *released).await);
                }
                Ok(bytes)
            }));
            HttpResponse {
                status: 200,
                headers: vec![("content-type".into(), "text/event-stream".into())],
                body: vec![BodyPart::Stream(body)],
            }
        });
        Self { server: server.await.unwrap(), requests, release }
    }

    /// Waits until the first two jobs have sent their requests for this turn.
    async fn wait_for_two(&mut self, turn: JobTurn) {
        let mut arrived = 0;
        while arrived < 2 {
            let request = tokio::time::timeout(LIMIT, self.requests.recv()).await;
            let (_, requested) = request.expect("a request arrives").unwrap();
            arrived += usize::from(requested == turn);
        }
    }

    /// The requests that have not been read.
    fn other_requests(&mut self) -> Vec<(String, JobTurn)> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).collect()
    }
}

/// The folder of the jobs, removed on drop.
struct JobFolder(PathBuf);

impl JobFolder {
    fn new() -> Self {
        static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("example-worker-{}-{number}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir_all(folder.0.join("jobs")).unwrap();
        for job in JOBS {
            std::fs::write(folder.0.join(format!("jobs/{job}.txt")), job).unwrap();
        }
        folder
    }

    /// The jobs whose tool has run, in the order of their names.
    fn reports(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join("reports.txt")).unwrap_or_default();
        let mut jobs: Vec<String> = text.lines().map(str::to_owned).collect();
        jobs.sort();
        jobs
    }

    /// Checks that each job was completed, and that its tool ran once.
    async fn assert_all_done(&self) {
        assert_eq!(self.reports(), JOBS);
        let store = JsonLinesStore::open(self.0.join("sessions")).unwrap();
        for job in JOBS {
            let session = Session::open(store.clone(), job).await.unwrap();
            assert_eq!(session.state(), SessionState::Idle, "{job}");
            let history = session.history();
            assert_eq!(history.last().and_then(Item::as_text), Some("Done."), "{job}");
            let results: Vec<_> = history.iter().filter_map(Item::as_tool_result).collect();
            assert!(matches!(results[..], [filed] if filed.content.text() == "filed"), "{job}");
        }
    }
}

impl Drop for JobFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The process. Dropping it kills the process.
struct Worker {
    process: Child,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    fn start(folder: &JobFolder, model: &HeldModel, grace: &str) -> Self {
        let mut command = Command::new(example_program("worker"));
        for name in ["ANTHROPIC_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(name);
        }
        command
            .args(["--folder", folder.0.to_str().unwrap(), "--at-once", "2", "--grace", grace])
            .env("OPENAI_API_KEY", "key")
            .env("OPENAI_BASE_URL", format!("{}/v1", model.server.url()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        Self { process, stdout }
    }

    /// Sends SIGTERM.
    fn terminate(&self) {
        let process = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
    }

    /// Reads the output until a line begins with this text.
    async fn wait_for_line(mut self, begin: &'static str) -> Self {
        let read = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            while !line.starts_with(begin) {
                line.clear();
                assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "no line `{begin}`");
            }
            self
        });
        tokio::time::timeout(LIMIT, read).await.expect("the line is printed").unwrap()
    }

    /// Waits for the end of the process, and returns its exit code and the rest of its output.
    async fn wait_for_exit(mut self) -> (Option<i32>, Vec<String>) {
        let ended = tokio::task::spawn_blocking(move || {
            let lines = self.stdout.by_ref().lines().map(Result::unwrap).collect();
            (self.process.wait().unwrap().code(), lines)
        });
        tokio::time::timeout(LIMIT, ended).await.expect("the process ends").unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn last_line(lines: &[String]) -> &str {
    lines.last().map_or("", String::as_str)
}

/// Starts the worker again, and checks that it completes the jobs.
async fn assert_restart_completes(folder: &JobFolder) -> Vec<(String, JobTurn)> {
    let mut model = HeldModel::start(None).await;
    let (code, lines) = Worker::start(folder, &model, "60").wait_for_exit().await;
    assert_eq!((code, last_line(&lines)), (Some(0), "4 done, 0 failed, 0 left"));
    folder.assert_all_done().await;
    model.other_requests()
}

fn requests_of(jobs: &[&str], turn: JobTurn) -> Vec<(String, JobTurn)> {
    jobs.iter().map(|job| ((*job).to_owned(), turn)).collect()
}

#[tokio::test]
async fn a_terminated_worker_completes_the_answers_that_stream_and_starts_no_job() {
    let folder = JobFolder::new();
    let mut model = HeldModel::start(Some(JobTurn::Answer)).await;
    let worker = Worker::start(&folder, &model, "60");
    model.wait_for_two(JobTurn::Answer).await;
    worker.terminate();
    let worker = worker.wait_for_line("Stopping").await;
    model.release.send_replace(true);
    let (code, lines) = worker.wait_for_exit().await;
    assert_eq!((code, last_line(&lines)), (Some(0), "2 done, 0 failed, 2 left"));
    // A job that was started prints a line at its end.
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(model.other_requests(), []);
    let requests = assert_restart_completes(&folder).await;
    assert!(requests.iter().all(|(job, _)| job == "c" || job == "d"), "{requests:?}");
}

#[tokio::test]
async fn a_terminated_worker_runs_the_calls_of_the_turns_that_stream_and_sends_no_further_request()
{
    let folder = JobFolder::new();
    let mut model = HeldModel::start(Some(JobTurn::Call)).await;
    let worker = Worker::start(&folder, &model, "60");
    model.wait_for_two(JobTurn::Call).await;
    worker.terminate();
    let worker = worker.wait_for_line("Stopping").await;
    model.release.send_replace(true);
    let (code, lines) = worker.wait_for_exit().await;
    assert_eq!((code, last_line(&lines)), (Some(0), "0 done, 0 failed, 4 left"));
    assert_eq!(model.other_requests(), []);
    assert_eq!(folder.reports(), ["a", "b"]);
    let requests = assert_restart_completes(&folder).await;
    let mut calls: Vec<_> =
        requests.into_iter().filter(|(_, turn)| *turn == JobTurn::Call).collect();
    calls.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(calls, requests_of(&["c", "d"], JobTurn::Call));
}

#[tokio::test]
async fn runs_that_outlast_the_grace_period_are_dropped_and_continued_by_the_next_start() {
    let folder = JobFolder::new();
    let mut model = HeldModel::start(Some(JobTurn::Answer)).await;
    let worker = Worker::start(&folder, &model, "0");
    model.wait_for_two(JobTurn::Answer).await;
    worker.terminate();
    let (code, lines) = worker.wait_for_exit().await;
    assert_eq!((code, last_line(&lines)), (Some(0), "0 done, 0 failed, 4 left"));
    assert_eq!(folder.reports(), ["a", "b"]);
    assert_restart_completes(&folder).await;
}

#[tokio::test]
async fn a_second_signal_ends_the_worker_immediately_and_loses_nothing() {
    let folder = JobFolder::new();
    let mut model = HeldModel::start(Some(JobTurn::Answer)).await;
    let worker = Worker::start(&folder, &model, "60");
    model.wait_for_two(JobTurn::Answer).await;
    worker.terminate();
    let worker = worker.wait_for_line("Stopping").await;
    worker.terminate();
    let (code, _) = worker.wait_for_exit().await;
    assert_eq!(code, Some(130));
    assert_eq!(folder.reports(), ["a", "b"]);
    assert_restart_completes(&folder).await;
}

#[tokio::test]
async fn a_failed_job_is_counted_and_tried_again_by_the_next_start() {
    let folder = JobFolder::new();
    let refusing = LoopbackServer::start(|_| HttpResponse::text(401, "no")).await.unwrap();
    let (release, _) = watch::channel(true);
    let model = HeldModel { server: refusing, requests: mpsc::unbounded_channel().1, release };
    let (code, lines) = Worker::start(&folder, &model, "0").wait_for_exit().await;
    assert_eq!((code, last_line(&lines)), (Some(1), "0 done, 4 failed, 0 left"));
    assert_restart_completes(&folder).await;
}

#[test]
fn bad_usage_is_one_line_and_exit_code_2() {
    for (args, wrong) in [
        (&["--fast", "1"][..], "`--fast`"),
        (&["--at-once", "many"], "`--at-once` needs a number"),
        (&["--grace"], "`--grace` needs a value"),
    ] {
        let output = Command::new(example_program("worker")).args(args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(wrong) && err.lines().count() == 1, "{args:?}: {err}");
    }
}
