//! A hub warns while a tool blocks its thread.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use turnstream::Agent;
use turnstream::event::EndReason;
use turnstream::hub::Hub;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;

use turnstream_test_support::runs::reply_calling;
use turnstream_test_support::tools::spec;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_blocks_its_thread_is_reported_while_it_blocks() {
    let (unblock, blocked) = sync_channel::<()>(1);
    let blocked = Arc::new(Mutex::new(blocked));
    // The tool returns only after the hub has reported it.
    let stuck = Tool::raw(spec("stuck"), move |_, _| {
        let blocked = Arc::clone(&blocked);
        async move {
            blocked.lock().unwrap().recv().unwrap();
            "done"
        }
    });
    let model = Scripted::new([reply_calling("c1", "stuck"), Reply::text("Done.")]);
    let agent = Agent::new(model).with_tool(stuck.unwrap());
    let reported = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&reported);
    let limit = Duration::from_millis(1);
    let hub = Hub::builder()
        .with_blocking_tool_warning(limit, move |blocking| {
            told.lock().unwrap().push(blocking);
            unblock.try_send(()).unwrap();
        })
        .build();
    let run = hub.start("key", agent.run("go")).await.unwrap();
    let events = hub.read_run(run.run_id(), None).unwrap().into_events();
    let events: Vec<_> = futures::StreamExt::collect(events).await;
    let outcome = events.last().unwrap().as_ref().unwrap().outcome().unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
    let reported = reported.lock().unwrap();
    let [blocking] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!((&*blocking.run, &*blocking.tool), (run.run_id(), "stuck"));
    assert!(blocking.elapsed >= limit, "{blocking:?}");
}
