//! The agent: its runs from the first request to the outcome.
//!
//! | module | claims |
//! |---|---|
//! | `outcomes` | a run's outcomes and events, and what its owner can do between two polls |
//! | `endings` | every way in which a run ends, in one table |
//! | `failed_runs` | a run that failed ends with its error |
//! | `panics` | a panic anywhere leaves a run with exactly one ending |
//! | `corrections` | turns that are continued, corrected or handed to the fallback |
//! | `bodies` | events that a program's own body forwards, and polls ahead of the run |
//! | `boundaries` | at every boundary the history that is sent is the fold of the events |
//! | `mix` | the invariants hold in runs that mix tools, sub-agents, hooks, compaction and verdicts |
//! | `structured_output` | answers with a type: parsing, validation, correction; JSON lines |
//! | `compaction`, `context_injector` | compaction and token estimates, and injected context |
//! | `budgets`, `cost` | limits on spending, and the price of a run |
//! | `repeated_calls` | a run that repeats its calls ends, and one that polls does not |
//! | `retries` | the turns that the agent itself retries |
//! | `interrupt_reasons` | the reason for an interrupt, as the outcome, the model, a session and a replay read it |
//! | `long_polls` | tools that block their thread are reported |
//! | `large_turns` | the byte limit of a turn applies to every provider |
//! | `run_observers` | observers of all runs of an agent or of a hub |
//! | `observing_hooks` | hooks that observe: when they are polled, notified and dropped; the run never waits for them |
//! | `sub_agents` | how deep sub-agents run inside one another |
//! | `suspended_sub_agents` | calls of sub-agents that wait suspend the run, and continue with it |
//! | `subagent_results` | the result that a parent receives at the end of its sub-agent |
//! | `time_limits` | the time that a run and a tool may take |
//! | `defaults` | the table of defaults in the guide, and the tests of its limits |
//! | `guide_tables` | the guide's tables of events, reasons and hooks, and the crates' tables of features |
//! | `pools` | resources that a tree of agents shares: tokens, and a limit on concurrency |
//! | `pending_calls` | calls that are pending, and work inside of tools, when a run ends |
//! | `argument_rewrites` | hooks that rewrite a call's arguments into invalid ones |
//! | `redaction` | hooks that remove secrets from the reports of calls |
//! | `grants` | standing permissions: what a grant allows, in which agents and runs, and when it stops |
//! | `run_data` | data that a program passes to the tools of one run |
//! | `detectors` | failure modes of a run, each next to a similar run without it |
//! | `stop_action` | a model ends its run with a typed action |
//! | `helper_usage` | the usage of requests that hooks send |
//! | `held_repeats` | calls that repeat a call with an unknown result |
//! | `memory` | notes that outlive a session |
//! | `mailbox` | messages between the agents of a run |
//! | `evidence` | an agent that ends only with evidence |
//! | `trace` | the trace of a run, step by step |
//! | `tracing_log` | a run in the logs of the crate `tracing` |
//! | `trace_context` | the contexts of a distributed trace reach requests and tools |
//! | `replay` | recorded runs are replayed, and resumed from a step with one change |
//! | `tombstones` | items that are tombstoned during a run |
//! | `tool_choice` | how long a run is forced to call tools |
//! | `tool_sources` | tools that change while a run continues |
//! | `call_journal` | a world stores a turn's calls through the public journal, and a crash repeats no call |
//! | `world` | a run that is stopped at any effect continues from the stored values |
//! | `classic_loops` | loops as textbooks show them, written with the public parts of the crate |
//! | `own_body` | the body in the example `own_body` is the agent's own except for one line |
//! | `end_of_turn` | the end of a turn, and turns without an end marker |
//! | `stop_reasons` | other stop reasons |
//! | `limits` | the order of results, and the limits of a run |
//! | `failing_hooks` | hooks that fail |
//! | `input_during_a_run` | input during a run, and hooks that prevent its end |
//! | `history_changes` | compaction, crashes, handoff to another model |
//! | `unsettled_histories` | histories that are not settled |
//! | `refused_reasoning` | reasoning that its provider no longer accepts |

mod argument_rewrites;
mod bodies;
mod boundaries;
mod budgets;
mod call_journal;
mod classic_loops;
mod compaction;
mod context_injector;
mod corrections;
mod cost;
mod defaults;
mod detectors;
mod end_of_turn;
mod endings;
mod evidence;
mod failed_runs;
mod failing_hooks;
mod grants;
mod guide_tables;
mod held_repeats;
mod helper_usage;
mod history_changes;
mod input_during_a_run;
mod interrupt_reasons;
mod large_turns;
mod limits;
mod long_polls;
mod mailbox;
mod memory;
mod mix;
mod observing_hooks;
mod outcomes;
mod own_body;
mod panics;
mod pending_calls;
mod pools;
mod redaction;
mod refused_reasoning;
mod repeated_calls;
mod replay;
mod retries;
mod run_data;
mod run_observers;
mod stop_action;
mod stop_reasons;
mod structured_output;
mod sub_agents;
mod subagent_results;
mod suspended_sub_agents;
mod time_limits;
mod tombstones;
mod tool_choice;
mod tool_sources;
mod trace;
mod trace_context;
#[cfg(feature = "tracing")]
mod tracing_log;
mod unsettled_histories;
mod world;
