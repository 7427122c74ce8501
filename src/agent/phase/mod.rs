//! The phases of an iteration, in the order in which the loop body calls them.

// In this order: input is delivered, tools are listed, the request is prepared, the run waits for
// its pool, the request is sent, the turn is forwarded, its tools run, and its stop is reviewed.
pub(in crate::agent) mod deliver_input;
pub(in crate::agent) mod forward_turns;
pub(in crate::agent) mod list_tools;
pub(in crate::agent) mod prepare_request;
pub(in crate::agent) mod review_stop;
pub(in crate::agent) mod run_tools;
pub(in crate::agent) mod send_request;
pub(in crate::agent) mod wait_for_pool;

pub(in crate::agent) mod compaction;
pub(in crate::agent) mod compaction_state;
pub(in crate::agent) mod external_facts;
pub(in crate::agent) mod refused_reasoning;
mod token_count;
