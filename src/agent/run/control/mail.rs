//! Messages between the agents of a run.

use std::sync::{Arc, Weak};

use crate::agent::run::control::control::Control;
use crate::agent::run::control::inbox::{DeliveryPoint, RefusedInput};
use crate::event::UndeliveredInput;
use crate::item::{Content, Item};
use crate::lock::lock_ignoring_poison;

/// The name of an outermost agent without a label.
const MAIN_NAME: &str = "main";
/// The maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;

impl Control {
    /// Queues a message for another agent of the same tree. Returns the name of the receiver.
    ///
    /// # Errors
    ///
    /// Returns a message for the model if the text is too long, if not exactly one running agent
    /// has the name, or if the receiver's queue is full.
    pub(in crate::agent) fn send_message(
        self: &Arc<Self>,
        id: &str,
        to: &str,
        text: &str,
    ) -> Result<String, String> {
        if text.len() > MAX_MESSAGE_BYTES {
            return Err(format!("a message may have at most {MAX_MESSAGE_BYTES} bytes"));
        }
        let others: Vec<_> =
            self.root().tree().into_iter().filter(|it| !Arc::ptr_eq(it, self)).collect();
        let running: Vec<_> = others.into_iter().filter(|it| !it.inbox.is_closed()).collect();
        let full_match: Vec<_> = running.iter().filter(|it| it.agent_name() == to).collect();
        let last_part = |it: &&Arc<Self>| it.agent_name().rsplit('/').next() == Some(to);
        let found = match full_match.is_empty() {
            true => running.iter().filter(last_part).collect(),
            false => full_match,
        };
        let receiver = match found[..] {
            [receiver] => receiver,
            [] => return Err(format!("no running agent is named `{to}`. {}", names_of(&running))),
            _ => return Err(format!("several running agents are named `{to}`")),
        };
        // The agents may have generators of equal ids.
        let id = format!("{}/{id}", self.agent_name());
        lock_ignoring_poison(&receiver.mail.senders).insert(id.clone(), Some(Arc::downgrade(self)));
        let from = self.agent_name();
        let message = Item::user(format!("Message from the agent `{from}`: {text}"));
        let input = UndeliveredInput { id: id.clone(), items: vec![message] };
        let queued = receiver.inbox.enqueue(DeliveryPoint::BeforeNextRequest, input);
        queued.map(|()| receiver.agent_name().to_owned()).map_err(|refused| {
            lock_ignoring_poison(&receiver.mail.senders).remove(&id);
            match refused {
                RefusedInput::RunIsOver(_) => format!("the agent `{to}` has just ended"),
                RefusedInput::QueueIsFull(_) => format!("the mailbox of `{to}` is full"),
            }
        })
    }

    /// Returns whether input with this id is a message of another agent, or came back from one. The
    /// input is delivered now, so its sender is not needed any more.
    pub(in crate::agent) fn take_message(&self, id: &str) -> bool {
        lock_ignoring_poison(&self.mail.senders).remove(id).is_some()
    }

    /// Tells the senders of messages that were not delivered.
    pub(super) fn return_mail(&self, undelivered: &[UndeliveredInput]) {
        let senders = std::mem::take(&mut *lock_ignoring_poison(&self.mail.senders));
        for input in undelivered {
            let sender = senders.get(&input.id).and_then(Option::as_ref).and_then(Weak::upgrade);
            let Some(sender) = sender else { continue };
            let text: Vec<String> =
                input.items.iter().filter_map(Item::as_user).map(Content::text).collect();
            let note = Item::user(format!(
                "Your message to the agent `{}` was not delivered, because the agent has ended \
                 or was suspended: {}",
                self.agent_name(),
                text.join("\n")
            ));
            let returned = UndeliveredInput { id: input.id.clone(), items: vec![note] };
            lock_ignoring_poison(&sender.mail.senders).insert(input.id.clone(), None);
            // A sender that has ended as well is not told.
            let _ = sender.inbox.enqueue_accepted(DeliveryPoint::BeforeNextRequest, returned);
        }
    }

    /// Returns the name by which other agents address this agent.
    fn agent_name(&self) -> &str {
        match self.sub_agents.label() {
            "" => MAIN_NAME,
            label => label,
        }
    }

    fn root(self: &Arc<Self>) -> Arc<Self> {
        let mut root = Arc::clone(self);
        while let Some(parent) = root.sub_agents.parent() {
            root = parent;
        }
        root
    }

    /// Returns this agent and all agents below it, including those that have ended.
    fn tree(self: &Arc<Self>) -> Vec<Arc<Self>> {
        let mut all = vec![Arc::clone(self)];
        let mut next = 0;
        while let Some(agent) = all.get(next) {
            let children = agent.sub_agents.children();
            all.extend(children);
            next += 1;
        }
        all
    }
}

fn names_of(agents: &[Arc<Control>]) -> String {
    let mut names: Vec<String> = agents.iter().map(|it| format!("`{}`", it.agent_name())).collect();
    names.sort();
    names.dedup();
    match names.is_empty() {
        true => "No other agent is running.".to_owned(),
        false => format!("These are running: {}.", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::run::control::control::SubAgentRun;
    use crate::env::CountingIds;
    use crate::item::History;
    use crate::journal::Journal;

    #[test]
    fn no_sender_is_kept_after_its_message_was_delivered() {
        let (main, reader): (Arc<Control>, Arc<Control>) = Default::default();
        reader.sub_agents.set_label("reader".into());
        let (journal, ids) = (Journal::new(History::empty("h")), CountingIds::new("id"));
        let run = SubAgentRun { control: Arc::clone(&reader), journal, ids: Arc::new(ids) };
        main.attach_sub_agent("c1", run);
        let senders = || lock_ignoring_poison(&main.mail.senders).len();
        for turn in 1..4 {
            reader.send_message(&turn.to_string(), "main", "It is broken.").unwrap();
            assert_eq!(senders(), 1);
            let input = main.inbox.dequeue(DeliveryPoint::BeforeNextRequest, turn).unwrap();
            assert!(main.take_message(&input.id));
            assert_eq!(senders(), 0);
        }
        // A message that was not delivered goes back, and is delivered there once.
        reader.send_message("4", "main", "It is broken.").unwrap();
        main.close();
        assert_eq!(senders(), 0);
        let returned = reader.inbox.dequeue(DeliveryPoint::BeforeNextRequest, 1).unwrap();
        assert!(reader.take_message(&returned.id) && !reader.take_message(&returned.id));
    }
}
