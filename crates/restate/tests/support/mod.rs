//! A Restate server, or a cluster of three, with workers in this process. For tests; examples and
//! benches include this module by its path.
//!
//! | module | contents |
//! |---|---|
//! | `wait` | waiting for a condition, with a limit |
//! | `temp_dir` | a folder that is removed when it is dropped |
//! | `server` | a server process: start, kill, restart |
//! | `cluster` | three servers that replicate to each other |
//! | `worker` | an endpoint of the SDK, served by a runtime of its own |
//! | `admin` | the admin API: deployments, cancel, kill, resume, SQL |
//! | `ingress` | the ingress API: call, send, attach |
//! | `usage` | memory of a process, disk space of a folder |
//!
//! Servers are processes, so waiting for one means polling it; only `wait` does that.

#![allow(dead_code, unused_imports, reason = "each includer uses a part of it")]

mod admin;
mod cluster;
mod ingress;
mod server;
mod temp_dir;
mod usage;
mod wait;
mod worker;

pub(crate) use admin::{
    cancel, count_by_status, failures, invocation, kill, query, register, register_overwriting,
    resume,
};
pub(crate) use cluster::RestateCluster;
pub(crate) use ingress::{Reply, attach, call, call_with_key, client, resolve_awakeable, send};
pub(crate) use server::{RestateServer, Settings};
pub(crate) use temp_dir::TempDir;
pub(crate) use usage::{disk_bytes, memory_kib};
pub(crate) use wait::{wait_for, wait_until};
pub(crate) use worker::{Worker, listen_with_nodelay};
