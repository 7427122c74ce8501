//! JSON lines are the same however the text of a turn is split.

use futures::{StreamExt, stream};
use proptest::prelude::*;
use serde::Deserialize;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::{JsonLine, TurnStreamExt};
use turnstream::turn::TurnEvent;
use turnstream::{Error, History, Request};

#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Row {
    n: u32,
    #[serde(default)]
    s: String,
}

/// The lines of a complete turn whose text arrives in these pieces.
async fn parse_lines(pieces: &[&str]) -> Vec<Result<JsonLine<Row>, Error>> {
    let delta = |text: &&str| Ok(TurnEvent::TextDelta { index: 0, text: (*text).into() });
    let mut events: Vec<_> = pieces.iter().map(delta).collect();
    let model = Scripted::new([Reply::text("all")]);
    let turn = model.stream_turn(Request::new(History::empty("h"))).into_turn().await.unwrap();
    events.push(Ok(TurnEvent::TurnComplete { turn }));
    stream::iter(events).json_lines().with_max_line_bytes(40).collect().await
}

proptest! {
    #[test]
    fn any_split_of_the_text_yields_the_same_lines(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "{\"n\":1}", "\n", "\r\n", "{\"n\":2,\"s\":\"é\u{2028}\"}", "oh", " ", "```",
                "{\"n\":", "3}", "\"012345678901234567890123456789\"", "\u{feff}",
            ]),
            0..12,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let text: String = parts.concat();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        at.retain(|at| text.is_char_boundary(*at));
        at.extend([0, text.len()]);
        at.sort_unstable();
        let pieces: Vec<&str> = at.windows(2).map(|two| &text[two[0]..two[1]]).collect();
        let (whole, cut) = futures::executor::block_on(async {
            (parse_lines(&[&text]).await, parse_lines(&pieces).await)
        });
        prop_assert_eq!(whole, cut);
    }
}
