//! Nested providers, and providers over a network.
//!
//! | module | claims |
//! |---|---|
//! | `retry` | which errors are retried, after which delay, and what the consumer observes |
//! | `fallback` | `Fallback` and `CircuitBreaker`: which provider is called, and for which errors |
//! | `custom` | providers made of a closure |
//! | `record_replay` | `Record` and `Replay`: the files they write and read, and their errors |
//! | `composition` | every wire and every fault, through a stack of providers, in an agent with tools |
//! | `http_retries` | the failed requests that a provider over HTTP retries on its own |
//! | `closed_connections` | servers that close idle connections |
//! | `transport` | HTTP between a request and its turn: statuses, timeouts, broken bodies |
//! | `runtime_changes` | turns that are started in one tokio runtime and read in another |
//! | `transport_settings` | headers, keys, proxies and the client, the same for every provider |
//! | `credentials` | keys, tokens that are fetched once for all requests, and signatures |
//! | `token_counts` | the requests that count tokens, and their errors |
//! | `clouds` | the request of each preset for a model in a cloud |
//! | `llama` | a real model on a real server, over three wires |
//! | `suite` | the claims that hold for every provider, over every wire and over the example `own_wire`'s |
//! | `supervised` | dropping a supervisor closes the connections of its runs |
//! | `own_wires` | wires that are implemented outside of the crate, and their faults |

#[cfg(feature = "http")]
mod closed_connections;
#[cfg(feature = "http")]
mod clouds;
#[cfg(feature = "http")]
mod composition;
#[cfg(feature = "http")]
mod credentials;
mod custom;
mod fallback;
#[cfg(feature = "http")]
mod http_retries;
#[cfg(all(feature = "http", feature = "schemars"))]
mod llama;
#[cfg(feature = "http")]
mod over_http;
#[cfg(feature = "http")]
#[expect(dead_code, reason = "only its wire is wanted")]
#[path = "../../examples/own_wire.rs"]
mod own_wire;
#[cfg(feature = "http")]
mod own_wires;
mod record_replay;
mod retry;
#[cfg(feature = "http")]
mod runtime_changes;
#[cfg(feature = "http")]
mod suite;
#[cfg(feature = "http")]
mod supervised;
#[cfg(feature = "http")]
mod token_counts;
#[cfg(feature = "http")]
mod transport;
#[cfg(feature = "http")]
mod transport_settings;
