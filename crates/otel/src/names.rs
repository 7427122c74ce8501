//! The names of spans, attributes, events and metrics, with the version of the conventions.
//!
//! The names outside of `turnstream.` are defined by OpenTelemetry's conventions for generative AI,
//! whose first release is 0.1.0. `tests/conventions.tsv` lists which span has which attributes, and
//! names its source. `tests/conventions_1_41.tsv` does so for the older names, and
//! `tests/conventions_metrics.tsv` lists the units of metrics.

/// The version of the conventions that define the names, unless a setting selects older names,
/// <https://github.com/open-telemetry/semantic-conventions-genai>.
pub const CONVENTIONS_VERSION: &str = "0.1.0";

/// The versions of the conventions whose names can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Conventions {
    /// The release 0.1.0 of the conventions for generative AI.
    #[default]
    GenAi0_1,
    /// The general conventions 1.41, which contained the conventions for generative AI before these
    /// had releases of their own,
    /// <https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai>. Backends
    /// may not know the newer names yet.
    General1_41,
}

impl Conventions {
    /// Returns the attributes of the spans of an operation that these conventions do not define,
    /// among those that are recorded.
    pub(crate) fn undefined_attributes(self, operation: &str) -> &'static [&'static str] {
        match (self, operation) {
            (Self::GenAi0_1, _) => &[],
            (Self::General1_41, operation::EXECUTE_TOOL) => {
                &[attribute::AGENT_NAME, attribute::CONVERSATION_ID]
            }
            (Self::General1_41, _) => &[
                attribute::CONVERSATION_COMPACTED,
                attribute::REQUEST_REASONING_LEVEL,
                attribute::USAGE_AUDIO_CACHE_READ_INPUT_TOKENS,
                attribute::USAGE_AUDIO_INPUT_TOKENS,
                attribute::USAGE_AUDIO_OUTPUT_TOKENS,
                attribute::USAGE_IMAGE_OUTPUT_TOKENS,
            ],
        }
    }
}

/// Defines constants, and a list of their values.
macro_rules! names {
    ($LIST:ident: $($NAME:ident = $name:literal;)*) => {
        $(pub(crate) const $NAME: &str = $name;)*
        #[cfg(test)]
        const $LIST: &[&str] = &[$($name),*];
    };
}

/// The attributes of spans and metrics.
pub(crate) mod attribute {
    names! { ALL:
        ERROR_TYPE = "error.type";
        AGENT_NAME = "gen_ai.agent.name";
        CONVERSATION_COMPACTED = "gen_ai.conversation.compacted";
        CONVERSATION_ID = "gen_ai.conversation.id";
        INPUT_MESSAGES = "gen_ai.input.messages";
        OPERATION_NAME = "gen_ai.operation.name";
        OUTPUT_MESSAGES = "gen_ai.output.messages";
        OUTPUT_TYPE = "gen_ai.output.type";
        PROVIDER_NAME = "gen_ai.provider.name";
        REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty";
        REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens";
        REQUEST_MODEL = "gen_ai.request.model";
        REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty";
        REQUEST_REASONING_LEVEL = "gen_ai.request.reasoning.level";
        REQUEST_SEED = "gen_ai.request.seed";
        REQUEST_STOP_SEQUENCES = "gen_ai.request.stop_sequences";
        REQUEST_STREAM = "gen_ai.request.stream";
        REQUEST_TEMPERATURE = "gen_ai.request.temperature";
        REQUEST_TOP_K = "gen_ai.request.top_k";
        REQUEST_TOP_P = "gen_ai.request.top_p";
        RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons";
        RESPONSE_ID = "gen_ai.response.id";
        RESPONSE_MODEL = "gen_ai.response.model";
        RESPONSE_TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk";
        TOKEN_MODALITY = "gen_ai.token.modality";
        TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments";
        TOOL_CALL_ID = "gen_ai.tool.call.id";
        TOOL_CALL_RESULT = "gen_ai.tool.call.result";
        TOOL_NAME = "gen_ai.tool.name";
        TOOL_TYPE = "gen_ai.tool.type";
        USAGE_AUDIO_CACHE_READ_INPUT_TOKENS = "gen_ai.usage.audio.cache_read.input_tokens";
        USAGE_AUDIO_INPUT_TOKENS = "gen_ai.usage.audio.input_tokens";
        USAGE_AUDIO_OUTPUT_TOKENS = "gen_ai.usage.audio.output_tokens";
        USAGE_CACHE_READ_INPUT_TOKENS = "gen_ai.usage.cache_read.input_tokens";
        USAGE_CACHE_WRITE_INPUT_TOKENS = "gen_ai.usage.cache_write.input_tokens";
        USAGE_IMAGE_OUTPUT_TOKENS = "gen_ai.usage.image.output_tokens";
        USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens";
        USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens";
        USAGE_REASONING_OUTPUT_TOKENS = "gen_ai.usage.reasoning.output_tokens";
    }

    /// The attributes that only the older conventions define.
    pub(crate) mod older {
        names! { ALL:
            TOKEN_TYPE = "gen_ai.token.type";
            USAGE_CACHE_CREATION_INPUT_TOKENS = "gen_ai.usage.cache_creation.input_tokens";
        }

        #[cfg(test)]
        pub(crate) const fn all() -> &'static [&'static str] {
            ALL
        }
    }

    /// The attributes of this crate.
    pub(crate) mod own {
        names! { ALL:
            APPROVAL_DECISION = "turnstream.approval.decision";
            BUDGET_KIND = "turnstream.budget.kind";
            BUDGET_LIMIT = "turnstream.budget.limit";
            BUDGET_USED = "turnstream.budget.used";
            COST_MICROS = "turnstream.cost_micros";
            EVIDENCE_COUNT = "turnstream.evidence.count";
            EVIDENCE_PROVEN = "turnstream.evidence.proven";
            GRANT_ID = "turnstream.grant.id";
            INTERRUPTED_LANE = "turnstream.interrupted.lane";
            INTERRUPTED_PHASE = "turnstream.interrupted.phase";
            ITEM_COUNT = "turnstream.items.count";
            PARTIAL = "turnstream.partial";
            PENDING_COUNT = "turnstream.pending.count";
            REASON = "turnstream.reason";
            REPLACED_COUNT = "turnstream.items.replaced";
            REQUEST_PURPOSE = "turnstream.request.purpose";
            RETRACTED = "turnstream.retracted";
            RETRY_ATTEMPT = "turnstream.retry.attempt";
            RESPONSE_SERVICE_TIER = "turnstream.response.service_tier";
            SIDE_EFFECT_COUNT = "turnstream.side_effects.count";
            TOOL_RESULT_KIND = "turnstream.tool.result";
            TRANSITION = "turnstream.transition";
            TURN = "turnstream.turn";
            TURN_COUNT = "turnstream.turns.count";
            UNDELIVERED_COUNT = "turnstream.undelivered.count";
            WAIT_DURATION = "turnstream.wait.duration";
        }

        #[cfg(test)]
        pub(crate) const fn all() -> &'static [&'static str] {
            ALL
        }
    }

    #[cfg(test)]
    pub(crate) const fn all() -> &'static [&'static str] {
        ALL
    }
}

/// The names of operations, which are also the first words of the names of spans.
pub(crate) mod operation {
    pub(crate) const CHAT: &str = "chat";
    pub(crate) const EXECUTE_TOOL: &str = "execute_tool";
    pub(crate) const INVOKE_AGENT: &str = "invoke_agent";
}

/// The names of the events of spans. The conventions define none for an agent's run.
pub(crate) mod event {
    pub(crate) const APPROVAL_REQUESTED: &str = "turnstream.approval_requested";
    pub(crate) const APPROVAL_WAIT: &str = "turnstream.approval_wait";
    pub(crate) const COMPACTED: &str = "turnstream.compacted";
    pub(crate) const POOL_WAIT: &str = "turnstream.pool_wait";
    pub(crate) const REASONING_DROPPED: &str = "turnstream.reasoning_dropped";
    pub(crate) const RETRY: &str = "turnstream.retry";
    pub(crate) const TOMBSTONED: &str = "turnstream.tombstoned";
    pub(crate) const TOOL_NOT_RUN: &str = "turnstream.tool_not_run";
}

/// The values of `error.type` that are not the name of an
/// [`ErrorKind`](turnstream::error::ErrorKind), an
/// [`EndReason`](turnstream::event::EndReason) or a
/// [`ResultKind`](turnstream::item::ResultKind).
pub(crate) mod error_type {
    /// The run was dropped.
    pub(crate) const CANCELLED: &str = "cancelled";
    /// A compaction used tokens and failed.
    pub(crate) const COMPACTION_FAILED: &str = "compaction_failed";
    /// The request failed, and the run continued with another one. The error is not known if the
    /// contexts of the spans are not part of the run's data.
    pub(crate) const OTHER: &str = "_OTHER";
    /// The output so far was retracted after an error that is not known.
    pub(crate) const RETRACTED: &str = "retracted";
}

/// The values of other attributes.
pub(crate) mod value {
    pub(crate) const ANSWERED: &str = "answered";
    pub(crate) const APPROVED: &str = "approved";
    pub(crate) const COMPACTION: &str = "compaction";
    pub(crate) const DENIED: &str = "denied";
    /// The finish reason of a response that was not received to its end.
    pub(crate) const FINISH_REASON_ERROR: &str = "error";
    pub(crate) const FUNCTION: &str = "function";
    pub(crate) const INPUT: &str = "input";
    pub(crate) const INTERRUPT: &str = "interrupt";
    pub(crate) const INTERRUPT_TURN: &str = "interrupt_turn";
    pub(crate) const JSON: &str = "json";
    pub(crate) const OUTPUT: &str = "output";
    pub(crate) const PENDING: &str = "pending";
    pub(crate) const SUSPENDED: &str = "suspended";
    /// A provider or a modality that is not known.
    pub(crate) const UNKNOWN: &str = "unknown";
}

/// The names of metrics.
pub(crate) mod metric {
    pub(crate) const AGENT_DURATION: &str = "gen_ai.invoke_agent.duration";
    pub(crate) const AGENT_INFERENCE_CALLS: &str = "gen_ai.invoke_agent.inference_calls";
    pub(crate) const AGENT_TOOL_CALLS: &str = "gen_ai.invoke_agent.tool_calls";
    pub(crate) const INFERENCE_DURATION: &str = "gen_ai.client.inference.duration";
    pub(crate) const OPERATION_INPUT_TOKENS: &str =
        "gen_ai.client.inference.operation.input_tokens";
    pub(crate) const OPERATION_OUTPUT_TOKENS: &str =
        "gen_ai.client.inference.operation.output_tokens";
    pub(crate) const TIME_PER_OUTPUT_CHUNK: &str = "gen_ai.client.inference.time_per_output_chunk";
    pub(crate) const TIME_TO_FIRST_CHUNK: &str = "gen_ai.client.inference.time_to_first_chunk";
    pub(crate) const TOOL_DURATION: &str = "gen_ai.execute_tool.duration";
    pub(crate) const USAGE_CACHE_READ_INPUT_TOKENS: &str =
        "gen_ai.client.inference.usage.cache_read.input_tokens";
    pub(crate) const USAGE_CACHE_WRITE_INPUT_TOKENS: &str =
        "gen_ai.client.inference.usage.cache_write.input_tokens";
    pub(crate) const USAGE_INPUT_TOKENS: &str = "gen_ai.client.inference.usage.input_tokens";
    pub(crate) const USAGE_OUTPUT_TOKENS: &str = "gen_ai.client.inference.usage.output_tokens";
    pub(crate) const USAGE_REASONING_OUTPUT_TOKENS: &str =
        "gen_ai.client.inference.usage.reasoning.output_tokens";

    /// The metrics that only the older conventions define.
    pub(crate) mod older {
        pub(crate) const OPERATION_DURATION: &str = "gen_ai.client.operation.duration";
        pub(crate) const TIME_PER_OUTPUT_CHUNK: &str =
            "gen_ai.client.operation.time_per_output_chunk";
        pub(crate) const TIME_TO_FIRST_CHUNK: &str = "gen_ai.client.operation.time_to_first_chunk";
        pub(crate) const TOKEN_USAGE: &str = "gen_ai.client.token.usage";
    }
}

/// The boundaries of the buckets that the conventions recommend.
pub(crate) mod buckets {
    /// The durations of requests and of tools, in seconds.
    pub(crate) const SECONDS: [f64; 14] =
        [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
    /// The durations of runs, in seconds.
    pub(crate) const AGENT_SECONDS: [f64; 13] =
        [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6];
    /// Numbers of calls.
    pub(crate) const CALLS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    /// Numbers of tokens.
    pub(crate) const TOKENS: [f64; 14] = [
        1.0,
        4.0,
        16.0,
        64.0,
        256.0,
        1_024.0,
        4_096.0,
        16_384.0,
        65_536.0,
        262_144.0,
        1_048_576.0,
        4_194_304.0,
        16_777_216.0,
        67_108_864.0,
    ];
}

/// Returns the conventions' name of the provider of a model, by the names that the vendors give to
/// their models, or `unknown`.
pub(crate) fn provider_of_model(model: &str) -> &'static str {
    const PREFIXES: [(&str, &str); 16] = [
        ("claude", "anthropic"),
        ("gpt", "openai"),
        ("chatgpt", "openai"),
        ("o1", "openai"),
        ("o3", "openai"),
        ("o4", "openai"),
        ("gemini", "gcp.gemini"),
        ("mistral", "mistral_ai"),
        ("magistral", "mistral_ai"),
        ("codestral", "mistral_ai"),
        ("deepseek", "deepseek"),
        ("grok", "x_ai"),
        ("command", "cohere"),
        ("sonar", "perplexity"),
        ("kimi", "moonshot_ai"),
        ("granite", "ibm.watsonx.ai"),
    ];
    let found = PREFIXES.iter().find(|(prefix, _)| model.starts_with(prefix));
    found.map_or(value::UNKNOWN, |(_, provider)| provider)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The attributes of the conventions, with the kinds of spans and metrics that have them.
    const CONVENTIONS: &str = include_str!("../tests/conventions.tsv");

    #[test]
    fn every_attribute_is_defined_by_the_conventions_or_is_this_crates_own() {
        let defined: BTreeSet<&str> = CONVENTIONS
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split('\t').nth(1))
            .collect();
        for name in attribute::all() {
            assert!(defined.contains(name), "{name}");
        }
        for name in attribute::own::all() {
            assert!(name.starts_with("turnstream."), "{name}");
        }
        for name in attribute::older::all() {
            assert!(!defined.contains(name), "{name}");
        }
    }

    #[test]
    fn the_guide_lists_the_attributes_of_this_crate() {
        let guide = include_str!("guide/telemetry.md");
        let is_row = |line: &&str| line.starts_with("| `turnstream.");
        let rows: Vec<_> = guide.lines().filter(is_row).collect();
        let mut listed: Vec<_> = rows.iter().map(|row| row.split('`').nth(1).unwrap()).collect();
        listed.sort_unstable();
        let mut own = attribute::own::all().to_vec();
        own.sort_unstable();
        assert_eq!(listed, own);
    }

    #[test]
    fn the_tables_of_the_conventions_have_the_version_of_the_names_and_their_source() {
        for (table, version) in [
            (CONVENTIONS, CONVENTIONS_VERSION),
            (include_str!("../tests/conventions_metrics.tsv"), CONVENTIONS_VERSION),
            (include_str!("../tests/conventions_1_41.tsv"), "1.41.0"),
        ] {
            let [title, source] = [0, 1].map(|nth| table.lines().nth(nth).unwrap());
            assert!(title.contains(&format!("version {version}")), "{title}");
            let is_commit = |word: &str| word.trim_end_matches([',', '.']).len() == 40;
            let is_named = source.contains("github.com/open-telemetry/semantic-conventions");
            assert!(is_named && source.split(' ').any(is_commit), "{source}");
        }
    }

    #[test]
    fn the_provider_of_a_model_is_found_by_the_models_name() {
        for (model, provider) in [
            ("claude-sonnet-4-5", "anthropic"),
            ("gpt-5.2", "openai"),
            ("o3-mini", "openai"),
            ("gemini-3-pro", "gcp.gemini"),
            ("grok-4", "x_ai"),
            ("scripted", "unknown"),
            ("", "unknown"),
        ] {
            assert_eq!(provider_of_model(model), provider, "{model}");
        }
    }
}
