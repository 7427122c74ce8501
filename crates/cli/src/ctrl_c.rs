//! A listener for Ctrl-C that misses no key press, and the meaning of the key at the prompt.

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

/// A second Ctrl-C at the prompt ends the chat if it follows the first one within this time.
pub(crate) const QUIT_WINDOW: Duration = Duration::from_secs(2);

/// Listens for Ctrl-C. After the first poll, the key no longer ends the program on its own.
pub(crate) struct CtrlC {
    next_press: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl CtrlC {
    pub(crate) fn new() -> Self {
        Self { next_press: Box::pin(wait_for_ctrl_c()) }
    }

    /// Waits for the key. Dropping the future loses nothing: the listener stays registered.
    pub(crate) async fn pressed(&mut self) {
        self.next_press.as_mut().await;
        self.next_press = Box::pin(wait_for_ctrl_c());
    }
}

async fn wait_for_ctrl_c() {
    if tokio::signal::ctrl_c().await.is_err() {
        // If the listener cannot be registered, the key ends the program.
        pending::<()>().await;
    }
}

/// The presses of Ctrl-C at one prompt.
#[derive(Default)]
pub(crate) struct PromptPresses {
    last: Option<Instant>,
}

/// The effect of a Ctrl-C at the prompt.
#[derive(Debug, PartialEq)]
pub(crate) enum PressEffect {
    DiscardLine,
    EndChat,
}

impl PromptPresses {
    pub(crate) fn press(&mut self, now: Instant) -> PressEffect {
        let is_second = self.last.is_some_and(|last| now - last <= QUIT_WINDOW);
        self.last = Some(now);
        if is_second { PressEffect::EndChat } else { PressEffect::DiscardLine }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_second_press_within_the_window_ends_the_chat() {
        let start = Instant::now();
        let mut presses = PromptPresses::default();
        for (millis, expected) in [
            (0, PressEffect::DiscardLine),
            (2_001, PressEffect::DiscardLine),
            (5_000, PressEffect::DiscardLine),
            (7_000, PressEffect::EndChat),
        ] {
            assert_eq!(presses.press(start + Duration::from_millis(millis)), expected, "{millis}");
        }
    }
}
