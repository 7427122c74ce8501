//! The Chat Completions wire: responses of servers, requests in each dialect, and the laws that
//! hold for all of them.

mod answers;
mod calls;
mod encode;
mod fixture;
mod options;
mod reasoning;

use self::fixture::*;
