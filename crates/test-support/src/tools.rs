//! Tools that return a constant, and tools whose executions are counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::ready;
use serde_json::{Value, json};
use turnstream::provider::Reply;
use turnstream::tool::{Tool, ToolContext, ToolSpec};

/// Counts how many times something started, and how many of these are alive.
#[derive(Clone, Default)]
pub struct Counter {
    started_count: Arc<AtomicUsize>,
    alive_count: Arc<AtomicUsize>,
}

/// Counts as alive until it is dropped.
pub struct CountGuard(Arc<AtomicUsize>);

impl Counter {
    pub fn enter(&self) -> CountGuard {
        self.started_count.fetch_add(1, Ordering::Relaxed);
        self.alive_count.fetch_add(1, Ordering::Relaxed);
        CountGuard(Arc::clone(&self.alive_count))
    }

    pub fn started_count(&self) -> usize {
        self.started_count.load(Ordering::Relaxed)
    }

    pub fn alive_count(&self) -> usize {
        self.alive_count.load(Ordering::Relaxed)
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The calls that ran, and the number of those that are running.
#[derive(Default)]
pub struct Executions {
    running_count: AtomicUsize,
    executed_call_ids: Mutex<Vec<String>>,
}

/// Counts as running until it is dropped, however the call ends.
pub struct RunningGuard(Arc<Executions>);

impl Executions {
    pub fn running_count(&self) -> usize {
        self.running_count.load(Ordering::Relaxed)
    }

    /// The ids of the calls that ran, in order.
    pub fn executed_call_ids(&self) -> Vec<String> {
        self.executed_call_ids.lock().unwrap().clone()
    }

    pub fn enter(self: &Arc<Self>, cx: &ToolContext) -> RunningGuard {
        self.executed_call_ids.lock().unwrap().push(cx.call_id().to_owned());
        self.running_count.fetch_add(1, Ordering::Relaxed);
        RunningGuard(Arc::clone(self))
    }

    /// Forgets the calls that ran; none of them may still be running.
    pub fn clear_executed(&self) {
        assert_eq!(self.running_count(), 0, "a tool of an earlier run still runs");
        self.executed_call_ids.lock().unwrap().clear();
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.running_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The spec of a tool that accepts any object.
pub fn spec(name: &str) -> ToolSpec {
    let parameters = json!({ "type": "object" });
    ToolSpec::new(name, "", parameters)
}

/// A tool that always returns `answer`.
pub fn constant_tool(name: &str, answer: &'static str) -> Tool {
    Tool::raw(spec(name), move |_, _| ready(answer)).unwrap()
}

/// A tool that answers with the output of the future that `steps` returns, and is counted while it
/// runs.
pub fn counted_tool<Fut>(
    name: &str,
    counter: &Counter,
    steps: impl Fn(Value) -> Fut + Send + Sync + 'static,
) -> Tool
where
    Fut: Future<Output = String> + Send + 'static,
{
    let counter = counter.clone();
    let run = move |args, _cx| {
        let (alive, answer) = (counter.enter(), steps(args));
        async move {
            let _alive = alive;
            answer.await
        }
    };
    Tool::raw(spec(name), run).unwrap()
}

/// A tool that answers immediately.
pub fn ok_tool(name: &str, counter: &Counter) -> Tool {
    counted_tool(name, counter, |_| async { "fine".to_owned() })
}

/// A tool that answers immediately, without a counter.
pub fn uncounted_tool(name: &str) -> Tool {
    ok_tool(name, &Counter::default())
}

/// A tool that never answers.
pub fn pending_tool(name: &str, counter: &Counter) -> Tool {
    counted_tool(name, counter, |_| std::future::pending())
}

/// A tool that returns its arguments.
pub fn echo_tool(counter: &Counter) -> Tool {
    counted_tool("echo", counter, |args| ready(args.to_string()))
}

/// A tool with a required number.
pub fn strict_tool(counter: &Counter) -> Tool {
    let counter = counter.clone();
    let parameters = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" }, "deep": {
            "type": "object", "properties": { "list": { "type": "array", "items": { "type": "string" } } },
        } },
        "required": ["n"],
    });
    Tool::raw(ToolSpec { parameters: parameters.into(), ..spec("strict") }, move |args, _| {
        let _alive = counter.enter();
        ready(args.to_string())
    })
    .unwrap()
}

/// A reply with a call of `nap` for each duration, in milliseconds.
pub fn reply_calling_nap(times: &[u64]) -> Reply {
    times.iter().fold(Reply::new(), |reply, ms| reply.call("nap", json!({ "ms": ms })))
}

/// A tool that returns `sum` and the sum of its arguments `a` and `b`.
pub fn sum_tool(name: &str) -> Tool {
    let sum = |args: Value, _| async move {
        format!("sum {}", args["a"].as_i64().unwrap() + args["b"].as_i64().unwrap())
    };
    Tool::raw(spec(name), sum).unwrap()
}

/// A tool that sleeps for the requested number of milliseconds, and returns that number.
pub fn nap_tool(name: &str) -> Tool {
    let run = |args: Value, _| async move {
        tokio::time::sleep(Duration::from_millis(args["ms"].as_u64().unwrap_or(0))).await;
        args["ms"].to_string()
    };
    Tool::raw(spec(name), run).unwrap()
}
