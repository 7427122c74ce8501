//! Ranks tools for a query by applying BM25 to the words in their specs.
//!
//! Ranking crates such as `bm25` and `probly-search` leave it to their users to implement the parts
//! that matter for tools: splitting names into words, stemming, and field weights. With such a
//! crate, only the summation in [`RankedTools::best_matches`] could be removed, at the cost of
//! further dependencies.

use std::collections::HashMap;

use serde_json::Value;

use crate::request::ToolSpec;
use crate::tool::search::synonyms::SYNONYMS;

/// Controls how quickly the score of a word saturates as the word occurs more often (BM25's `k1`).
const SATURATION: f64 = 1.0;

/// The weight of a word that is a synonym of a query word, for example `remove` for `delete`.
const SYNONYM_WEIGHT: f64 = 0.85;

/// The fraction of a group's score that is added to the score of each tool in the group. A group
/// contains the tools of one server.
const GROUP_WEIGHT: f64 = 0.6;

/// The number of best-scoring tools that determine the score of a group (the tools of one server).
const GROUP_LEN: usize = 3;

/// The maximum depth to which a schema is searched for words.
const MAX_SCHEMA_DEPTH: usize = 4;

/// A part of a tool's spec. The variants are in order of importance.
#[derive(Clone, Copy)]
enum Field {
    Name,
    Description,
    Parameters,
}

const FIELDS: [Field; 3] = [Field::Name, Field::Description, Field::Parameters];

impl Field {
    fn weight(self) -> f64 {
        match self {
            Self::Name => 2.7,
            Self::Description => 1.0,
            Self::Parameters => 0.4,
        }
    }

    /// Returns BM25's `b`, a number from 0 to 1 that determines how much the length of the field
    /// lowers the scores of the words in the field.
    fn length_penalty(self) -> f64 {
        match self {
            Self::Name => 0.3,
            Self::Description | Self::Parameters => 0.9,
        }
    }
}

/// An index of the words in the specs of a list of tools.
#[derive(Debug)]
pub(crate) struct RankedTools {
    /// Maps each word to the tools whose specs contain it, in list order. Each entry contains a
    /// tool's index and the word's weighted frequency in that tool's spec.
    postings: HashMap<String, Vec<(usize, f64)>>,
    /// The words in each tool's name, in order.
    names: Vec<Vec<String>>,
    /// Each tool's group, which is its server (the part of the tool's name before `__`).
    groups: Vec<Option<String>>,
    /// Groups of synonyms, with each word reduced to its stem.
    synonyms: Vec<Vec<String>>,
}

impl RankedTools {
    pub(crate) fn new<'a>(specs: impl IntoIterator<Item = &'a ToolSpec>) -> Self {
        let specs: Vec<&ToolSpec> = specs.into_iter().collect();
        let groups = specs.iter().map(|spec| Some(spec.name.split_once("__")?.0.to_owned()));
        let groups = groups.collect();
        let tools: Vec<[Vec<String>; 3]> = specs.into_iter().map(fields_of).collect();
        let mut postings: HashMap<String, Vec<(usize, f64)>> = HashMap::new();
        for (at, field) in FIELDS.into_iter().enumerate() {
            let total: usize = tools.iter().map(|fields| fields[at].len()).sum();
            let average = as_f64(total) / as_f64(tools.len().max(1));
            for (tool, fields) in tools.iter().enumerate() {
                let relative_len = as_f64(fields[at].len()) / average.max(1.0);
                let penalty = field.length_penalty();
                let value = field.weight() / (1.0 - penalty + penalty * relative_len);
                for word in &fields[at] {
                    let found = postings.entry(word.clone()).or_default();
                    match found.iter_mut().find(|(other, _)| *other == tool) {
                        Some((_, sum)) => *sum += value,
                        None => found.push((tool, value)),
                    }
                }
            }
        }
        for found in postings.values_mut() {
            found.sort_by_key(|(tool, _)| *tool);
        }
        let names = tools.into_iter().map(|[name, ..]| name).collect();
        let synonyms = SYNONYMS.iter().map(|group| group.split(' ').map(stem).collect()).collect();
        Self { postings, names, groups, synonyms }
    }

    /// Returns the indices of the tools that best match the query, up to `limit`, with the best
    /// match first. Tools with equal scores stay in list order.
    pub(crate) fn best_matches(&self, query: &str, limit: usize) -> Vec<usize> {
        let mut words = stems(query);
        let name = words.clone();
        words.sort_unstable();
        words.dedup();
        let mut scores = vec![0.0_f64; self.names.len()];
        for word in &words {
            // Of the scores for a word and its variants, only the highest is used.
            let mut best = vec![0.0_f64; scores.len()];
            for (variant, weight) in self.variants(word) {
                let Some(found) = self.postings.get(variant) else { continue };
                let (all, having) = (as_f64(self.names.len()), as_f64(found.len()));
                let rarity = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
                for (tool, frequency) in found {
                    let score = weight * rarity * frequency / (SATURATION + frequency);
                    best[*tool] = best[*tool].max(score);
                }
            }
            scores.iter_mut().zip(best).for_each(|(score, best)| *score += best);
        }
        self.add_group_scores(&mut scores);
        for (score, own) in scores.iter_mut().zip(&self.names) {
            // The query equals the tool's name.
            if !name.is_empty() && *own == name {
                *score += f64::from(u16::MAX);
            }
        }
        let mut best: Vec<usize> = (0..scores.len()).filter(|tool| scores[*tool] > 0.0).collect();
        // The sort is stable, so tools with equal scores stay in list order.
        best.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        best.truncate(limit);
        best
    }

    /// Adds a fraction of a group's best scores to the score of each tool in the group. Among tools
    /// that match equally well, a tool from a server with other matching tools is more likely to be
    /// the right tool.
    fn add_group_scores(&self, scores: &mut [f64]) {
        let mut best_of_group: HashMap<&str, Vec<f64>> = HashMap::new();
        for (score, group) in scores.iter().zip(&self.groups) {
            let Some(group) = group else { continue };
            best_of_group.entry(group).or_default().push(*score);
        }
        for best in best_of_group.values_mut() {
            best.sort_by(|a, b| b.total_cmp(a));
            best.truncate(GROUP_LEN);
        }
        for (score, group) in scores.iter_mut().zip(&self.groups) {
            let group = group.as_deref().and_then(|group| best_of_group.get(group));
            let Some(best) = group else { continue };
            *score += GROUP_WEIGHT * best.iter().sum::<f64>() / as_f64(GROUP_LEN);
        }
    }

    /// Returns a query word and its synonyms, each with a weight.
    fn variants<'a>(&'a self, word: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let groups = self.synonyms.iter().filter(move |group| group.iter().any(|it| it == word));
        let synonyms = groups.flatten().map(|synonym| (synonym.as_str(), SYNONYM_WEIGHT));
        std::iter::once((word, 1.0)).chain(synonyms)
    }
}

/// Returns the words in each field of a tool's spec. The fields are the name, the description, and
/// the parameters, including their descriptions.
fn fields_of(spec: &ToolSpec) -> [Vec<String>; 3] {
    let mut parameters = Vec::new();
    push_schema_words(&spec.parameters.to_value(), 0, &mut parameters);
    [stems(&spec.name), stems(&spec.description), parameters]
}

fn push_schema_words(schema: &Value, depth: usize, words: &mut Vec<String>) {
    if depth > MAX_SCHEMA_DEPTH {
        return;
    }
    if let Some(description) = schema["description"].as_str() {
        words.extend(stems(description));
    }
    let choices = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    choices.for_each(|choice| words.extend(stems(choice)));
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        words.extend(stems(name));
        push_schema_words(property, depth + 1, words);
    }
    push_schema_words_of_items(schema, depth, words);
}

fn push_schema_words_of_items(schema: &Value, depth: usize, words: &mut Vec<String>) {
    if schema["items"].is_object() {
        push_schema_words(&schema["items"], depth + 1, words);
    }
}

/// Returns the stems of the words in a string, in order and without stop words. The string is split
/// at punctuation and at the word boundaries in `camelCase`. The parts of a camel-case word are
/// followed by the whole word, because many users write a name such as `GitHub` as a single word.
fn stems(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in text.split(|c: char| !c.is_alphanumeric()) {
        let chars: Vec<char> = part.chars().collect();
        let mut word = String::new();
        for (at, c) in chars.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| chars[at]);
            let next_is_lower = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
            // A new word starts at the capital letter in `camelCase`, and at the last capital
            // letter in `HTTPServer`.
            let begins = c.is_uppercase()
                && before.is_some_and(|it| it.is_lowercase() || it.is_uppercase() && next_is_lower);
            if begins {
                words.push(std::mem::take(&mut word));
            }
            word.extend(c.to_lowercase());
        }
        let is_whole = word.chars().count() == chars.len();
        words.push(word);
        if !is_whole {
            words.push(part.to_lowercase());
        }
    }
    let says_something = |word: &String| {
        let is_letter = word.len() == 1 && word.chars().all(|c| c.is_ascii_alphabetic());
        let is_number = word.chars().all(|c| c.is_ascii_digit());
        !is_letter && !is_number && !STOP_WORDS.split(' ').any(|stop| stop == word)
    };
    words.into_iter().filter(says_something).map(|word| stem(&word)).collect()
}

/// Returns the approximate stem of an English word by stripping common suffixes. Forms of the same
/// word, such as `translates`, `translating` and `translation`, have the same stem. The stem is not
/// always a word itself.
fn stem(word: &str) -> String {
    if word.len() <= 3 || !word.chars().all(|c| c.is_ascii_lowercase()) || word == "news" {
        return word.to_owned();
    }
    let regular = IRREGULAR_FORMS.iter().find(|(form, _)| *form == word);
    let word = singular(regular.map_or(word, |(_, regular)| regular));
    let has_vowel = |rest: &str| rest.contains(['a', 'e', 'i', 'o', 'u', 'y']);
    let without = |ending: &str, min_len: usize| {
        word.strip_suffix(ending).filter(|rest| rest.len() >= min_len && has_vowel(rest))
    };
    let word = if let Some(rest) = without("ing", 3).or_else(|| without("ed", 3)) {
        let mut rest = rest.to_owned();
        let doubled = ["bb", "dd", "gg", "mm", "nn", "pp", "rr", "tt"];
        if doubled.iter().any(|end| rest.ends_with(end)) {
            rest.pop();
        } else if is_short(&rest) {
            rest.push('e');
        }
        rest
    } else if let Some(rest) = without("ation", 3) {
        format!("{rest}at")
    } else if let Some(rest) = without("ion", 3).filter(|rest| rest.ends_with(['s', 't'])) {
        rest.to_owned()
    } else if let Some(rest) = without("ment", 4).or_else(|| without("ly", 4)) {
        rest.to_owned()
    } else {
        let endings = ["ability", "able", "ance", "ence", "al", "er", "or"];
        let rest = endings.iter().find_map(|ending| word.strip_suffix(ending));
        rest.filter(|rest| syllables(rest) > 1).unwrap_or(&word).to_owned()
    };
    let word = match word.strip_suffix('e') {
        Some(rest) if rest.len() > 2 && !is_short(rest) => rest,
        _ => &word,
    };
    match word.strip_suffix('y') {
        Some(rest) if rest.len() > 2 => format!("{rest}i"),
        _ => word.to_owned(),
    }
}

/// Returns the approximate number of syllables in a word, by counting the groups of vowels that are
/// followed by a consonant.
fn syllables(word: &str) -> usize {
    let is_vowel: Vec<bool> = word.chars().map(|c| "aeiouy".contains(c)).collect();
    is_vowel.windows(2).filter(|pair| pair[0] && !pair[1]).count()
}

/// Returns whether `rest`, a word without its ending, has exactly one vowel, followed by exactly
/// one consonant other than `w` and `x`. An `e` after such a `rest` belongs to the stem, as in
/// `plane`.
fn is_short(rest: &str) -> bool {
    let is_vowel = |c: &char| "aeiouy".contains(*c);
    let mut from_end = rest.chars().rev();
    from_end.next().is_some_and(|c| !is_vowel(&c) && c != 'w' && c != 'x')
        && from_end.next().is_some_and(|c| is_vowel(&c))
        && from_end.all(|c| !is_vowel(&c))
}

fn singular(word: &str) -> String {
    let sibilants = ["ss", "x", "ch", "sh", "z", "us"];
    if let Some(rest) = word.strip_suffix("ies").filter(|rest| rest.len() > 1) {
        return format!("{rest}y");
    }
    if let Some(rest) = word.strip_suffix("es")
        && sibilants.iter().any(|end| rest.ends_with(end))
    {
        return rest.to_owned();
    }
    match word.strip_suffix('s') {
        Some(rest) if !rest.ends_with(['s', 'u', 'i']) => rest.to_owned(),
        _ => word.to_owned(),
    }
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Irregular forms of common verbs and nouns.
const IRREGULAR_FORMS: &[(&str, &str)] = &[
    ("bought", "buy"),
    ("broke", "break"),
    ("broken", "break"),
    ("built", "build"),
    ("children", "child"),
    ("found", "find"),
    ("held", "hold"),
    ("left", "leave"),
    ("lost", "lose"),
    ("made", "make"),
    ("paid", "pay"),
    ("people", "person"),
    ("sent", "send"),
    ("sold", "sell"),
    ("spent", "spend"),
    ("spoke", "speak"),
    ("taken", "take"),
    ("went", "go"),
    ("written", "write"),
    ("wrote", "write"),
];

/// Stop words: words that reveal nothing about a tool.
const STOP_WORDS: &str = "a about again all also an and any are as at be because been but by can could did do \
    does each every five for four from going had has have he her here him his how i if \
    in into is it its just know like many may me more much my need not of on \
    one only or our out please really say she should so some still sure than that \
    the their them then there these they thing think this those three to too tool two us \
    use used using very want was we were what when where whether which while who whose why \
    will with would yet you your";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str) -> ToolSpec {
        ToolSpec::new(name, description, json!({ "type": "object" }))
    }

    #[track_caller]
    fn check_same_stem(words: &[&str]) {
        let stems: Vec<String> = words.iter().map(|word| stem(word)).collect();
        assert!(stems.iter().all(|other| *other == stems[0]), "{words:?}: {stems:?}");
    }

    #[test]
    fn forms_of_one_word_have_one_stem() {
        check_same_stem(&["translate", "translates", "translated", "translating", "translation"]);
        check_same_stem(&["create", "creates", "created", "creating", "creation"]);
        check_same_stem(&["delete", "deletion", "deleting"]);
        check_same_stem(&["query", "queries", "querying"]);
        check_same_stem(&["branch", "branches"]);
        check_same_stem(&["stop", "stopped", "stopping"]);
        check_same_stem(&["deploy", "deployment", "deploys"]);
        check_same_stem(&["status", "statuses"]);
        check_same_stem(&["message", "messages", "messaging"]);
    }

    #[test]
    fn unrelated_words_have_different_stems() {
        for (a, b) in [("news", "new"), ("pay", "paint"), ("user", "use"), ("order", "ore")] {
            assert_ne!(stem(a), stem(b));
        }
    }

    #[test]
    fn names_are_cut_at_punctuation_and_in_camel_case() {
        assert_eq!(stems("github__create_issue"), ["github", "creat", "issu"]);
        assert_eq!(
            stems("getHTTPServer.v2-run"),
            ["get", "http", "server", "gethttpserv", "v2", "run"]
        );
        assert_eq!(stems("GitHub"), ["git", "hub", "github"]);
        assert_eq!(stems("Grüße_an dich"), ["grüße", "dich"]);
    }

    #[test]
    fn a_word_of_the_name_counts_more_than_one_of_the_description() {
        let tools = [tool("a", "Sends a fax"), tool("fax", "Sends a letter")];
        assert_eq!(RankedTools::new(&tools).best_matches("fax", 5), [1, 0]);
    }

    #[test]
    fn a_rare_word_counts_more_than_a_common_one() {
        let tools = [
            tool("send_a", "Sends a thing"),
            tool("send_b", "Sends a thing"),
            tool("b", "Keeps a zebra"),
        ];
        assert_eq!(RankedTools::new(&tools).best_matches("send zebra", 1), [2]);
    }

    #[test]
    fn parameters_are_searched_too() {
        let mut spec = tool("x", "Does it");
        spec.parameters =
            json!({ "type": "object", "properties": { "where": { "type": "array", "items": {
            "properties": { "latitude": { "description": "degrees" } } } } } })
            .into();
        let tools = [tool("y", "Does it"), spec];
        assert_eq!(RankedTools::new(&tools).best_matches("latitudes", 5), [1]);
        assert_eq!(RankedTools::new(&tools).best_matches("degree", 5), [1]);
    }

    #[test]
    fn equally_ranked_tools_keep_their_list_order() {
        let tools: Vec<_> = (0..9).map(|_| tool("look", "Looks")).collect();
        assert_eq!(RankedTools::new(&tools).best_matches("look", 4), [0, 1, 2, 3]);
    }

    #[test]
    fn the_tool_whose_name_was_searched_is_first() {
        let tools = [
            tool("issue_list_list", "list list list issue issue"),
            tool("list_issues", "Something else"),
        ];
        assert_eq!(RankedTools::new(&tools).best_matches("list_issues", 5), [1, 0]);
    }

    #[test]
    fn synonyms_find_a_tool_but_count_less() {
        let tools = [tool("erase", "x"), tool("remover", "x"), tool("keep", "x")];
        assert_eq!(RankedTools::new(&tools).best_matches("delete", 5), [0, 1]);
        let both = [tool("erase", "x"), tool("delete", "x")];
        assert_eq!(RankedTools::new(&both).best_matches("delete", 5), [1, 0]);
    }

    #[test]
    fn tools_of_a_matching_server_rank_first() {
        let tools = [tool("a__play", "x"), tool("b__play", "x"), tool("b__song", "x")];
        assert_eq!(RankedTools::new(&tools).best_matches("play a song", 5), [2, 1, 0]);
    }

    #[test]
    fn a_query_without_a_known_word_finds_nothing() {
        let index = RankedTools::new(&[tool("look", "Looks")]);
        for query in ["", "   ", "the of and", "xylophone", "?!"] {
            assert!(index.best_matches(query, 5).is_empty(), "{query}");
        }
        assert!(RankedTools::new(&[]).best_matches("look", 5).is_empty());
    }

    #[test]
    fn descriptions_of_parameters_are_read_four_levels_deep() {
        let match_count = |levels: usize| {
            let described = json!({ "type": "string", "description": "Zeppelin" });
            let schema = (0..levels).fold(
                described,
                |inner, _| json!({ "type": "object", "properties": { "a": inner } }),
            );
            let spec = ToolSpec::new("t", "", schema);
            RankedTools::new([&spec]).best_matches("zeppelin", 9).len()
        };
        assert_eq!([match_count(4), match_count(5)], [1, 0]);
    }
}
