//! A history that would outgrow the model's window: how long it is, who makes it shorter and when,
//! and what one request is told besides.

mod automatic;
mod estimate;
mod kit;
mod narrow;
mod summarize;
mod window;
