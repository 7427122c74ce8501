//! Random ids for appends.
use std::error::Error as StdError;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// Identifies an append by 128 random bits, which are stored as a `uuid` with the append's first
/// entry. If the connection breaks before the response arrives, the id shows whether the append was
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AppendId(u128);

impl AppendId {
    pub(crate) fn random() -> Self {
        let mut bytes = [0; 16];
        // Invariant: if the operating system provided no random numbers, creating a `std` hash map
        // would also panic.
        getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
        Self(u128::from_be_bytes(bytes))
    }
}

impl ToSql for AppendId {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.put_u128(self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for AppendId {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(u128::from_be_bytes(raw.try_into()?)))
    }

    accepts!(UUID);
}
