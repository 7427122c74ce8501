#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bundled_prices;
mod priced_usage;

pub use bundled_prices::BundledPrices;

use turnstream::usage::Prices;

/// Returns the bundled prices, to pass to a budget or a pool.
///
/// This is the same as `Prices::new().with_source(BundledPrices::new())`. Add your own prices with
/// [`Prices::with_price`].
///
/// ```
/// use turnstream::agent::{Budget, Pool};
/// use turnstream::usage::Price;
///
/// let local = Price { input: 0.1, output: 0.2, cache_read: 0.1, cache_write: 0.1 };
/// let prices = turnstream_prices::prices().with_price("my-model", local);
/// let budget = Budget::new().with_cost_limit(2.0, prices.clone());
/// let of_the_user = Pool::unlimited().with_cost_limit(20.0, prices);
/// # drop((budget, of_the_user));
/// ```
pub fn prices() -> Prices {
    Prices::new().with_source(BundledPrices::new())
}
