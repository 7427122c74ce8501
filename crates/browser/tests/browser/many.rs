//! Many messages, many tabs, and a tab that reads too slowly.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use turnstream::Item;
use turnstream::session::{Entry, JsonLinesStore, Store};

use crate::driver::{WIDE, cdp};
use crate::model::Model;
use crate::page::Page;
use crate::server::Server;

const MESSAGES: usize = 10_000;

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn ten_thousand_messages_are_loaded_in_pages_of_a_hundred() {
    let model = Model::start().await;
    let url = model.url();
    let flags =
        ["--provider", "openai", "--base-url", &url, "--model", "m", "--session", "sessions"];
    let server = Server::start_with(&flags, 0).await;
    let store = JsonLinesStore::open(server.folder.join("sessions")).unwrap();
    let entry = |number: usize| {
        let words = format!("Message {number}, with **some** words and `code`.\n\n- one\n- two");
        Entry::from(if number.is_multiple_of(2) { Item::user(words) } else { Item::text(words) })
    };
    store.append("s", 0, (0..MESSAGES).map(entry).collect()).await.unwrap();
    let page = Page::open(&server, "s", WIDE).await;
    page.wait_for_words("Message 9999").await;
    let count = "return document.querySelectorAll('#history .user, #history .answer').length";
    assert_eq!(page.run(count).await, 100);
    let paint =
        page.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime");
    println!("10,000 messages: first paint after {:.0} ms", paint.await.as_f64().unwrap());
    println!("10,000 messages, 100 of them shown: {} MiB of memory", memory(&page).await >> 20);
    // One page more is loaded. The visible messages keep their position.
    let place =
        "return document.querySelector('#history > :last-child .user').getBoundingClientRect().top";
    page.run("document.getElementById('scroll').scrollTop = 0").await;
    let before = page.run(place).await.as_f64().unwrap();
    page.click("#older").await;
    page.wait("document.querySelectorAll('#history .user, #history .answer').length === 200").await;
    assert!((page.run(place).await.as_f64().unwrap() - before).abs() < 2.0);
    for shown in (300..=MESSAGES).step_by(100) {
        page.run("document.getElementById('older').click()").await;
        let all = "document.querySelectorAll('#history .user, #history .answer').length";
        page.wait(&format!("{all} === {shown}")).await;
    }
    page.wait("document.getElementById('older').hidden").await;
    let shown = memory(&page).await;
    println!("10,000 messages, all of them shown: {} MiB of memory", shown >> 20);
    assert!(shown < 150 << 20, "{shown} bytes");
    let order = "return [...document.querySelectorAll('#history .user .words, #history .answer')]\
         .every((node, at) => node.textContent.startsWith(`Message ${at},`))";
    assert_eq!(page.run(order).await, true);
    page.close().await;
}

/// The bytes of a page's objects and elements.
async fn memory(page: &Page) -> u64 {
    cdp(&page.client, "HeapProfiler.collectGarbage", json!({})).await;
    cdp(&page.client, "Performance.enable", json!({})).await;
    let metrics = cdp(&page.client, "Performance.getMetrics", json!({})).await;
    let metrics = metrics["metrics"].as_array().unwrap();
    let heap = metrics.iter().find(|metric| metric["name"] == "JSHeapUsedSize").unwrap();
    let heap = heap["value"].as_f64().unwrap();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of bytes")]
    let heap = heap as u64;
    heap.max(private_memory(renderers_of(page).await))
}

/// The memory that processes share with no other.
fn private_memory(pids: Vec<i32>) -> u64 {
    let of = |pid: i32| {
        let rollup =
            std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let lines = rollup.lines().filter(|line| line.starts_with("Private_"));
        let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
        lines.filter_map(kib).sum::<u64>() << 10
    };
    pids.into_iter().map(of).max().unwrap_or_default()
}

/// The processes that render a browser's pages.
async fn renderers_of(page: &Page) -> Vec<i32> {
    let info = cdp(&page.client, "Browser.getVersion", json!({})).await;
    assert!(info["product"].as_str().is_some(), "{info}");
    let capabilities = page.client.capabilities().unwrap();
    let folder = capabilities["chrome"]["userDataDir"].as_str().unwrap().to_owned();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pid = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let line = |pid: i32| std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"));
    let is_renderer = |pid: &i32| {
        let line = String::from_utf8_lossy(&line(*pid).unwrap_or_default()).replace('\0', " ");
        line.contains("--type=renderer")
            && !line.contains("--extension-process")
            && line.contains(&folder)
    };
    processes.filter_map(pid).filter(is_renderer).collect()
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_hidden_tab_closes_its_connection() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Begin").await;
    let asked = model.asked().await;
    asked.say("One ");
    page.wait_for_words("One").await;
    let first = page.client.window().await.unwrap();
    for tab in 1..8 {
        let handle = page.client.new_window(true).await.unwrap().handle;
        page.client.switch_to_window(handle).await.unwrap();
        page.go(&server, "s").await;
        page.wait_for_words("One").await;
        println!("tab {tab}: {}", page.run("return document.visibilityState").await);
    }
    // With eight tabs, and six connections per host in a browser, some connections are still free
    // for requests.
    let health = server.wait_for_health(|health| health["readers"] == 1).await;
    assert_eq!(health["runs"], 1);
    asked.say("two ");
    page.wait_for_words("One two").await;
    page.client.switch_to_window(first).await.unwrap();
    page.wait_for_words("One two").await;
    asked.say("three");
    asked.end();
    page.wait_until_idle().await;
    assert_eq!(page.answers().await, ["One two three"]);
    server.wait_for_health(|health| health["readers"] == 0).await;
    for handle in page.client.windows().await.unwrap() {
        page.client.switch_to_window(handle).await.unwrap();
        page.wait_until_idle().await;
        page.wait_for_words("One two three").await;
        assert_eq!(page.answers().await, ["One two three"]);
        assert_eq!(page.texts(".user .words").await, ["Begin"]);
    }
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_tab_that_was_hidden_shows_the_missed_runs() {
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("One").await;
    model.answer("First.").await;
    page.wait_for_words("First.").await;
    page.wait_until_idle().await;
    let hidden = page.client.window().await.unwrap();
    let handle = page.client.new_window(true).await.unwrap().handle;
    page.client.switch_to_window(handle).await.unwrap();
    page.go(&server, "s").await;
    page.wait_for_words("First.").await;
    page.ask("Two").await;
    model.answer("Second.").await;
    page.wait_for_words("Second.").await;
    page.wait_until_idle().await;
    page.ask("Three").await;
    let asked = model.asked().await;
    asked.say("Thi");
    page.wait_for_words("Thi").await;
    page.client.switch_to_window(hidden).await.unwrap();
    page.wait_for_words("Thi").await;
    asked.say("rd.");
    asked.end();
    page.wait_for_words("Third.").await;
    page.wait_until_idle().await;
    assert_eq!(page.texts(".user .words").await, ["One", "Two", "Three"]);
    assert_eq!(page.answers().await, ["First.", "Second.", "Third."]);
    page.close().await;
}

#[tokio::test]
#[ignore = "needs a browser: crates/browser/tests/run.sh"]
async fn a_tab_that_falls_behind_is_disconnected_and_reconnects() {
    // The buffer sizes of the browser and the sockets differ between machines.
    const AT_MOST: usize = 400_000;
    let model = Model::start().await;
    let server = Server::start(&model).await;
    let page = Page::open(&server, "s", WIDE).await;
    page.ask("Speak").await;
    let asked = model.asked().await;
    asked.say("word 0\n");
    page.wait_for_words("word 0").await;
    let renderers = renderers_of(&page).await;
    assert!(!renderers.is_empty());
    let signal = |signal: Signal| {
        for pid in &renderers {
            kill_process(Pid::from_raw(*pid).unwrap(), signal).unwrap();
        }
    };
    let before = resident(server.pid());
    signal(Signal::STOP);
    let mut said = 1;
    let health = loop {
        assert!(said < AT_MOST, "{said} words, and the tab is not disconnected");
        for word in said..said + 10_000 {
            asked.say(&format!("word {word}\n"));
        }
        said += 10_000;
        if let Some(health) = server.health_soon(|health| health["cut_readers"] != 0).await {
            break health;
        }
    };
    let after = resident(server.pid());
    println!(
        "a tab that is suspended: disconnected after {said} events; memory of the server {} KiB before, \
         {} after; {health}",
        before >> 10,
        after >> 10
    );
    // The text of the turn is kept in the run and in its log; the reader's frames are not.
    assert!(after < before + (24 << 20), "{before} {after}");
    signal(Signal::CONT);
    asked.end();
    page.wait_until_idle().await;
    let shown = page.texts("#live .answer").await.concat();
    let words: Vec<&str> = shown.split("word ").map(str::trim).skip(1).collect();
    assert_eq!(words.len(), said);
    assert!(words.iter().enumerate().all(|(at, word)| *word == at.to_string()));
    page.close().await;
}

/// The memory that a process uses.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
