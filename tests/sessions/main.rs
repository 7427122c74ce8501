//! Sessions and their stores.
//!
//! | module | claims |
//! |---|---|
//! | `session` | when entries are written, what is read back, and what survives a crash |
//! | `stores` | the contract of every store, and the failures that the durable ones survive |
//! | `suspended_sub_agents` | sub-agents that wait for a verdict in a session that is opened again |

mod session;
mod stores;
mod suspended_sub_agents;
