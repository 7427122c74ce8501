//! Sessions: what is written when, what is read back, and what a crash leaves.

#[path = "../agent_mix/cast.rs"]
#[expect(dead_code, reason = "the other test looks at more of it")]
mod cast;
mod law;
