//! Tools that return a constant, and tools whose executions are counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::ready;
use serde_json::{Value, json};
use turnstream::provider::Reply;
use turnstream::tool::{Tool, ToolContext, ToolSpec};

/// How many of something began, and how many are there now.
#[derive(Clone, Default)]
pub(crate) struct Counter {
    began: Arc<AtomicUsize>,
    now: Arc<AtomicUsize>,
}

/// Counts for as long as it lives.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counter {
    pub(crate) fn count(&self) -> Counted {
        self.began.fetch_add(1, Ordering::Relaxed);
        self.now.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.now))
    }

    pub(crate) fn began(&self) -> usize {
        self.began.load(Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The calls that ran, and the number of those that are running.
#[derive(Default)]
pub(crate) struct Executions {
    running: AtomicUsize,
    ran: Mutex<Vec<String>>,
}

/// Counts as running until it is dropped, however the call ends.
pub(crate) struct Running(Arc<Executions>);

impl Executions {
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// The ids of the calls that ran, in order.
    pub(crate) fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }

    pub(crate) fn enter(self: &Arc<Self>, cx: &ToolContext) -> Running {
        self.ran.lock().unwrap().push(cx.call_id().to_owned());
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(self))
    }

    /// Forgets the calls that ran, none of which may still run.
    pub(crate) fn clear(&self) {
        assert_eq!(self.running(), 0, "law 2: a tool of an earlier run still runs");
        self.ran.lock().unwrap().clear();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The spec of a tool that accepts any object.
pub(crate) fn spec(name: &str) -> ToolSpec {
    let parameters = json!({ "type": "object" });
    ToolSpec { name: name.into(), description: String::new(), parameters }
}

/// A tool that always returns `answer`.
pub(crate) fn constant(name: &str, answer: &'static str) -> Tool {
    Tool::raw(spec(name), move |_, _| ready(answer)).unwrap()
}

/// A tool that takes what `steps` says to answer, and is counted while it runs.
pub(crate) fn answering<Fut>(
    name: &str,
    counter: &Counter,
    steps: impl Fn(Value) -> Fut + Send + Sync + 'static,
) -> Tool
where
    Fut: Future<Output = String> + Send + 'static,
{
    let counter = counter.clone();
    let run = move |args, _cx| {
        let (alive, answer) = (counter.count(), steps(args));
        async move {
            let _alive = alive;
            answer.await
        }
    };
    Tool::raw(spec(name), run).unwrap()
}

/// A tool that answers at once.
pub(crate) fn fine(name: &str, counter: &Counter) -> Tool {
    answering(name, counter, |_| async { "fine".to_owned() })
}

/// The same, where nobody counts.
pub(crate) fn tool(name: &str) -> Tool {
    fine(name, &Counter::default())
}

/// A tool that never answers.
pub(crate) fn endless(name: &str, counter: &Counter) -> Tool {
    answering(name, counter, |_| std::future::pending())
}

/// Gives back what it was called with.
pub(crate) fn echo(counter: &Counter) -> Tool {
    answering("echo", counter, |args| ready(args.to_string()))
}

/// A tool with a number that it needs.
pub(crate) fn strict(counter: &Counter) -> Tool {
    let counter = counter.clone();
    let parameters = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" }, "deep": {
            "type": "object", "properties": { "list": { "type": "array", "items": { "type": "string" } } },
        } },
        "required": ["n"],
    });
    Tool::raw(ToolSpec { parameters, ..spec("strict") }, move |args, _| {
        let _alive = counter.count();
        ready(args.to_string())
    })
    .unwrap()
}

/// A reply with a call of `nap` for each duration, in milliseconds.
pub(crate) fn naps(times: &[u64]) -> Reply {
    times.iter().fold(Reply::new(), |reply, ms| reply.call("nap", json!({ "ms": ms })))
}

/// A tool that returns `sum` and the sum of its arguments `a` and `b`.
pub(crate) fn adds(name: &str) -> Tool {
    let sum = |args: Value, _| async move {
        format!("sum {}", args["a"].as_i64().unwrap() + args["b"].as_i64().unwrap())
    };
    Tool::raw(spec(name), sum).unwrap()
}

/// A tool that takes as many milliseconds as it is told, and says so.
pub(crate) fn nap(name: &str) -> Tool {
    let run = |args: Value, _| async move {
        tokio::time::sleep(Duration::from_millis(args["ms"].as_u64().unwrap_or(0))).await;
        args["ms"].to_string()
    };
    Tool::raw(spec(name), run).unwrap()
}
