//! Limits how many lists of the store's sessions are in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use turnstream::Error;

use super::failure::Failure;
use crate::authorize::Principal;

/// The number of lists that are read at the same time.
const MAX_LISTINGS: usize = 8;

/// How long a request waits for its list, including the lists of other requests before it.
const LISTING_LIMIT: Duration = Duration::from_secs(30);

/// The requests that read the list of all sessions: one at a time of each principal. Clones share
/// their requests.
#[derive(Clone)]
pub(super) struct Listings {
    of_all: Arc<Semaphore>,
    /// One permit for each principal whose request reads or waits.
    of_principals: Arc<Mutex<HashMap<Arc<str>, Arc<Semaphore>>>>,
}

impl Default for Listings {
    fn default() -> Self {
        Self { of_all: Arc::new(Semaphore::new(MAX_LISTINGS)), of_principals: Arc::default() }
    }
}

impl Listings {
    /// Waits until the principal may read a list, and reads it.
    pub(super) async fn read<T>(
        &self,
        principal: &Principal,
        read: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        let own = self.of_principal(principal);
        let limited = async {
            // The semaphores are never closed.
            let _own = own.acquire().await.ok();
            let _slot = self.of_all.acquire().await.ok();
            read.await
        };
        match timeout(LISTING_LIMIT, limited).await {
            Ok(read) => Ok(read?),
            Err(_) => {
                let message = "the sessions cannot be listed in time";
                Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, message))
            }
        }
    }

    fn of_principal(&self, principal: &Principal) -> Arc<Semaphore> {
        let mut known = self.of_principals.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, own| Arc::strong_count(own) > 1);
        let own = known.entry(principal.shared_id()).or_insert_with(|| Arc::new(Semaphore::new(1)));
        Arc::clone(own)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::super::failure::ErrorForm;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_list_that_hangs_delays_only_its_principal_and_is_given_up() {
        let (listings, began) = (Listings::default(), Instant::now());
        let (ada, bob) = (Principal::new("ada"), Principal::new("bob"));
        let second = async {
            listings.read(&bob, async { Ok(()) }).await.unwrap();
            assert_eq!(began.elapsed(), Duration::ZERO);
            listings.read(&ada, async { Ok(()) }).await.unwrap_err()
        };
        let (hung, refused) = tokio::join!(listings.read(&ada, pending::<Result<(), _>>()), second);
        for failure in [hung.unwrap_err(), refused] {
            let status = failure.respond(ErrorForm::Json).status();
            assert_eq!((status, began.elapsed()), (StatusCode::SERVICE_UNAVAILABLE, LISTING_LIMIT));
        }
        listings.read(&ada, async { Ok(()) }).await.unwrap();
        assert_eq!(listings.of_principals.lock().unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn only_eight_lists_are_in_memory() {
        let (listings, in_memory) = (Listings::default(), std::cell::Cell::new(0));
        let reads = (0..20).map(|n| {
            let (listings, in_memory) = (&listings, &in_memory);
            async move {
                let read = async {
                    in_memory.set(in_memory.get() + 1);
                    let most = in_memory.get();
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    in_memory.set(in_memory.get() - 1);
                    Ok(most)
                };
                listings.read(&Principal::new(n.to_string()), read).await.unwrap()
            }
        });
        let most = futures::future::join_all(reads).await.into_iter().max();
        assert_eq!(most, Some(MAX_LISTINGS));
    }
}
