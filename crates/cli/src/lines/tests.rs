use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::LocalModes;

use super::*;

/// Opens a pseudoterminal: returns its keyboard end and a reader of its other end.
fn open_terminal() -> (OwnedFd, InputReader) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let terminal = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    (keyboard, InputReader::from_source(StdinSource::from_fd(terminal).unwrap()))
}

/// Types a text, and waits for its echo, so that the terminal has received it.
fn type_keys(keyboard: &OwnedFd, text: &str) {
    rustix::io::write(keyboard, text.as_bytes()).unwrap();
    // The terminal echoes a line break as two characters.
    let mut left = text.len() + text.matches('\n').count();
    while left > 0 {
        left -= rustix::io::read(keyboard, &mut vec![0; left]).unwrap();
    }
}

/// `start_paused`: a wait takes no real time; it ends when all tasks are idle.
#[tokio::test(start_paused = true)]
async fn pasted_lines_are_one_entry() {
    let (keyboard, mut lines) = open_terminal();
    type_keys(&keyboard, "one\ntwo\n\nthree\n");
    assert_eq!(lines.next_entry().await.unwrap().as_deref(), Some("one\ntwo\n\nthree"));
    type_keys(&keyboard, "four\n");
    assert_eq!(lines.next_entry().await.unwrap().as_deref(), Some("four"));
}

#[tokio::test(start_paused = true)]
async fn a_line_directly_after_another_counts_as_pasted_with_it() {
    let (keyboard, mut lines) = open_terminal();
    type_keys(&keyboard, "one\n");
    let soon = async {
        tokio::time::sleep(MAX_PASTE_GAP / 2).await;
        type_keys(&keyboard, "two\n");
    };
    let (entered, ()) = tokio::join!(lines.next_entry(), soon);
    assert_eq!(entered.unwrap().as_deref(), Some("one\ntwo"));
}

#[tokio::test(start_paused = true)]
async fn a_pasted_text_waits_for_the_end_of_its_last_line() {
    let (keyboard, mut lines) = open_terminal();
    type_keys(&keyboard, "one\ntwo");
    let entered = lines.next_entry();
    let ended = async {
        // The first line was read, and the paste is over.
        tokio::time::sleep(MAX_PASTE_GAP * 4).await;
        type_keys(&keyboard, "!\n");
    };
    let (entered, ()) = tokio::join!(entered, ended);
    assert_eq!(entered.unwrap().as_deref(), Some("one\ntwo!"));
}

#[tokio::test(start_paused = true)]
async fn earlier_input_is_drained_even_without_a_line_end() {
    let (keyboard, mut lines) = open_terminal();
    type_keys(&keyboard, "y\ny\ny\nye");
    assert_eq!(lines.take_typed().unwrap(), "y\ny\ny\nye");
    assert_eq!(lines.take_typed().unwrap(), "");
    type_keys(&keyboard, "\n");
    assert_eq!(lines.next_entry().await.unwrap().as_deref(), Some(""), "no part of it is left");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_read_future_loses_no_entry() {
    let (keyboard, mut lines) = open_terminal();
    type_keys(&keyboard, "one\n");
    tokio::select! {
        biased;
        _ = lines.next_entry() => panic!("more could have been pasted"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(lines.next_entry().await.unwrap().as_deref(), Some("one"));
}

#[tokio::test(start_paused = true)]
async fn end_of_input_is_reported_once_after_all_entries() {
    let (keyboard, mut lines) = open_terminal();
    let end = "\u{4}";
    rustix::io::write(&keyboard, format!("begun{end}{end}").as_bytes()).unwrap();
    assert_eq!(lines.next_entry().await.unwrap().as_deref(), Some("begun"));
    rustix::io::write(&keyboard, end.as_bytes()).unwrap();
    assert_eq!(lines.next_entry().await.unwrap(), None);
    type_keys(&keyboard, "more\n");
    assert_eq!(lines.next_entry().await.unwrap().as_deref(), Some("more"));
}

/// The result of editing `text` with the given keys, and the text that was printed.
async fn edit(text: &str, keys: &str) -> (Option<String>, String) {
    let (keyboard, mut lines) = open_terminal();
    let mut screen = Vec::new();
    let edited = lines.edit_entry("> ", text.to_owned(), Some(40), &mut screen);
    // The first poll of `edited` has switched the mode of the terminal.
    let typed = async { rustix::io::write(&keyboard, keys.as_bytes()).unwrap() };
    let (edited, _) = tokio::join!(edited, typed);
    (edited.unwrap(), String::from_utf8(screen).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_text_in_the_input_line_is_edited_like_typed_text() {
    let (sent, screen) = edit("Only in sec", "\u{7f}\u{7f}rc\n").await;
    assert_eq!(sent.as_deref(), Some("Only in src"));
    assert_eq!(screen, "> Only in sec\u{8} \u{8}\u{8} \u{8}rc\n");
    let (sent, screen) = edit("one\ntwo", "\n").await;
    assert_eq!((sent.as_deref(), screen.as_str()), (Some("one\ntwo"), "> one\u{23ce}two\n"));
    assert_eq!(edit("one", "\u{15}two\n").await.0.as_deref(), Some("two"));
    assert_eq!(edit("one", ", two\n\nthree\n").await.0.as_deref(), Some("one, two\n\nthree"));
    assert_eq!(edit("one", "\u{4}\n").await.0.as_deref(), Some("one"));
    assert_eq!(edit("x", "\u{7f}\u{4}").await.0, None);
}

#[tokio::test(start_paused = true)]
async fn the_terminal_echoes_again_after_a_line_was_edited_or_discarded() {
    let (keyboard, mut lines) = open_terminal();
    let mut screen = Vec::new();
    tokio::select! {
        biased;
        _ = lines.edit_entry("> ", "one".to_owned(), None, &mut screen) => panic!("no key"),
        () = tokio::task::yield_now() => {}
    }
    let mode = rustix::termios::tcgetattr(&keyboard).unwrap().local_modes;
    assert!(mode.contains(LocalModes::ICANON | LocalModes::ECHO), "{mode:?}");
    type_keys(&keyboard, "two\n");
    assert_eq!(lines.next_entry().await.unwrap().as_deref(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_discards_the_typed_line_unless_it_is_to_be_kept() {
    for (is_kept, expected) in [(true, "half a line"), (false, "")] {
        let (keyboard, mut lines) = open_terminal();
        let guard = is_kept.then(|| lines.keep_line_on_ctrl_c().unwrap());
        type_keys(&keyboard, "half a line");
        rustix::io::write(&keyboard, b"\x03").unwrap();
        // The terminal echoes the key as `^C`.
        rustix::io::read(&keyboard, &mut [0; 2]).unwrap();
        assert_eq!(lines.take_typed().unwrap(), expected);
        drop(guard);
    }
}
