//! The example `sqlite_crash`: a process that is killed in the middle of a session loses nothing and
//! does nothing twice.

use turnstream_test_support::crash::assert_nothing_lost;

#[test]
fn twenty_kills_lose_and_duplicate_nothing_in_a_sqlite_session() {
    assert_nothing_lost("sqlite_crash", &["--kills", "20", "--seed", "7"], 20);
}
