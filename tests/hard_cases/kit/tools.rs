//! Tools that are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::ready;
use serde_json::{Value, json};
use turnstream::tool::{Tool, ToolSpec};

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

/// What the model is told of a tool: it may be given a number.
pub(crate) fn spec(name: &str) -> ToolSpec {
    let properties = json!({ "ms": { "type": "integer" } });
    let parameters = json!({ "type": "object", "properties": properties });
    ToolSpec { name: name.into(), description: "A tool of a test".into(), parameters }
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

/// A tool that takes as many milliseconds as it is told, and says so.
pub(crate) fn nap(name: &str) -> Tool {
    let run = |args: Value, _| async move {
        tokio::time::sleep(Duration::from_millis(args["ms"].as_u64().unwrap_or(0))).await;
        args["ms"].to_string()
    };
    Tool::raw(spec(name), run).unwrap()
}
