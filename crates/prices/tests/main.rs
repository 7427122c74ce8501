//! Runs with the usage of real models cost what the vendors charge on their dates.

mod gaps;
mod names;
mod published_prices;
mod support;
mod windows;
