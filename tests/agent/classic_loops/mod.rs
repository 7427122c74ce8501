//! Loops as textbooks show them, written by hand with the public parts of the crate. Each module is
//! named after the heading of its program. The minimal agent loop with its trace, in which an
//! audited change of a glossary fails its check and is fixed, is the example `minimal_loop`.

mod exits_are_policy_not_accident;
mod fix_one_failing_unit_test_and_verify;
mod graceful_cancellation;
mod how_to_implement_an_agent_loop;
mod malformed_responses_and_tombstones;
mod recovery_when_the_model_emits_garbage;
mod termination_strategies;
mod the_state_struct_pattern;
