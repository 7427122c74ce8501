use super::*;
use crate::http::Secret;

/// Pseudo-random numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).unwrap()
    }

    fn key(&mut self) -> String {
        const LETTERS: &[u8] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_/+=.";
        let prefix = ["", "sk-", "sk-ant-api03-", "AIza", "gsk_"][self.roll(5)];
        let length = 16 + self.roll(100);
        let mut key = prefix.to_owned();
        for at in 0..length {
            // The last characters must not look like part of an elision mark.
            let letters = if at + 4 < length { LETTERS } else { &LETTERS[..62] };
            key.push(char::from(letters[self.roll(letters.len())]));
        }
        key
    }
}

fn percent(text: &str, unescaped: &str, is_lower: bool) -> String {
    let one = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' | '_' | '~' => c.to_string(),
        c if unescaped.contains(c) => c.to_string(),
        c if is_lower => format!("%{:02x}", u32::from(c)),
        c => format!("%{:02X}", u32::from(c)),
    };
    text.chars().map(one).collect()
}

fn broken(key: &str, by: &str, every: usize) -> String {
    let lines: Vec<String> =
        key.as_bytes().chunks(every).map(|line| String::from_utf8_lossy(line).into()).collect();
    lines.join(by)
}

fn padded(text: &str) -> String {
    let text = STANDARD_NO_PAD.encode(text);
    format!("{text}{}", "=".repeat((4 - text.len() % 4) % 4))
}

/// All forms of a key. They contain only the bytes of the key.
fn forms(key: &str) -> Vec<(&'static str, String)> {
    let json = |text: &str| serde_json::to_string(text).unwrap().trim_matches('"').to_owned();
    let slashes = |text: &str| text.replace('/', "\\/");
    let url = |text: String| text.replace('+', "-").replace('/', "_");
    let (head, tail) = (&key[..key.len() / 4], &key[key.len() - 4..]);
    vec![
        ("as it is", key.to_owned()),
        ("upper case", key.to_uppercase()),
        ("lower case", key.to_lowercase()),
        ("JSON", json(key)),
        ("JSON with slashes", slashes(key)),
        ("JSON with slashes in JSON", json(&slashes(key))),
        ("JSON with numbers", key.replace('/', "\\u002F").replace('+', "\\u002b")),
        ("percent", percent(key, "", false)),
        ("percent with slashes", percent(key, "/", false)),
        ("percent in lower case", percent(key, "", true)),
        ("percent twice", percent(&percent(key, "", false), "", false)),
        ("percent twice in lower case", percent(&percent(key, "/", true), "/", true)),
        ("percent three times", percent(&percent(&percent(key, "", false), "", false), "", false)),
        ("broken by line feeds", broken(key, "\n", 10)),
        ("broken by line ends and indented", broken(key, "\r\n    ", 20)),
        ("broken by spaces", broken(key, " ", 7)),
        ("broken in JSON", broken(key, "\\n", 9)),
        ("broken in an address", broken(key, "%0A", 11)),
        ("cut with dots", format!("{head}...{tail}")),
        ("cut with two dots", format!("{head}..")),
        ("cut with an ellipsis", format!("{head}…{tail}")),
        ("cut with an escaped ellipsis", format!("{head}\\u2026{tail}")),
        ("cut with asterisks", format!("{head}***{tail}")),
        ("cut with many asterisks", format!("{}{}{tail}", &key[..5], "*".repeat(40))),
        ("cut with bullets", format!("{head}••••{tail}")),
        ("cut in another case", format!("{}...{tail}", head.to_uppercase())),
        ("its end", format!("******{tail}")),
        ("its first half", key[..key.len() / 2 + 4].to_owned()),
        ("base64", padded(key)),
        ("base64 behind one byte", padded(&format!(":{key}"))),
        ("base64 behind two bytes", padded(&format!("a:{key}"))),
        ("base64 of a user and a password", padded(&format!("user:{key}"))),
        ("base64 inside of more", padded(&format!("{{\"key\":\"{key}\"}}"))),
        ("base64 for addresses", url(padded(key))),
        ("base64 in an address", percent(&padded(key), "", true)),
        ("base64 over lines", broken(&padded(key), "\r\n", 20)),
    ]
}

#[test]
fn a_key_is_masked_in_every_encoding_and_surrounding_text_is_kept() {
    let mut dice = Dice(88_172_645_463_325_252);
    for _ in 0..100 {
        let key = dice.key();
        for (form, written) in forms(&key) {
            let text = format!("the key \"{written}\" is not valid (401)");
            let shown = Secret::new(&key).mask_in(&text);
            assert!(shown.starts_with("the key \""), "{form}: {text}: {shown}");
            assert!(shown.ends_with("\" is not valid (401)"), "{form}: {text}: {shown}");
            // Not even four letters of the key are visible, except for adjacent base64 groups.
            let rest = &shown["the key \"".len()..shown.len() - "\" is not valid (401)".len()];
            let parts = rest.split('…').map(str::len).sum::<usize>();
            let allowed = if form.contains("base64") { 14 } else { 0 };
            assert!(parts <= allowed, "{form}: {text}: {shown}");
            assert!(shown.contains('…'), "{form}: {text}: {shown}");
            assert_eq!(Secret::new(&key).mask_in(&shown), shown, "{form}: masked twice");
        }
    }
}

#[test]
fn a_text_without_the_key_is_not_changed() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for _ in 0..40 {
        // Keys of one vendor start with the same prefix, so it is not secret.
        let (key, other) = (format!("zzz{}", dice.key()), dice.key());
        for (form, written) in forms(&format!("{other}{other}")) {
            let text =
                format!("… wait... the *** other … \"{written}\" is… fine%20\\n\\u00e9 é🎉 ...");
            assert_eq!(Secret::new(&key).mask_in(&text), text, "{form} of another key");
        }
    }
    let text = "Production is down... Test it; the test*** of prod is PRODUCTIVE: test… testing";
    for short in ["sk", "abc", "key-key", "tests!"] {
        assert_eq!(Secret::new(short).mask_in(text), text, "{short}");
    }
    // A short key is found literally, but not in different case.
    assert_eq!(Secret::new("hunter2").mask_in("Hunter2 is not hunter2"), "Hunter2 is not …");
}

#[test]
fn masking_takes_time_linear_in_the_text() {
    // A text in which a match starts everywhere; a quadratic search would take minutes.
    let key = "a".repeat(40) + "b";
    for piece in ["a", "%", "\\", "%25", "a ", ".", "…", "aaaa."] {
        let text = piece.repeat(200_000 / piece.len());
        let shown = Secret::new(&key).mask_in(&text);
        assert!(shown.len() <= text.len());
    }
}

#[test]
fn a_key_of_fewer_than_four_bytes_is_not_masked() {
    assert_eq!(Secret::new("abc").mask_in("abc"), "abc");
    assert_eq!(Secret::new("abcd").mask_in("abcd"), "…");
}
