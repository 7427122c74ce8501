//! The text form of event numbers.

use turnstream::hub::EventNumber;

#[test]
fn event_numbers_round_trip_through_text() {
    for text in ["r.1-0", "a.b.c.12-34", "5f0c.18446744073709551615-0"] {
        assert_eq!(text.parse::<EventNumber>().unwrap().to_string(), text);
    }
    for text in
        ["", "r", ".1-0", "r.1", "r.-", "r.1-", "r.+1-0", "r.1-0x", "r.1-99999999999999999999"]
    {
        assert!(text.parse::<EventNumber>().is_err(), "{text}");
    }
}
