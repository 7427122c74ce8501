//! The command line, parsed by hand.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use turnstream::provider::openai_chat::Dialect;

use crate::provider_name::{ProviderName, parse_dialect};
use crate::session;

/// The flags that need the feature `mcp`.
const MCP_FLAGS: &[&str] = &["--mcp", "--mcp-config"];

pub(crate) const HELP: &str = "\
Asks an agent that can read the working directory, and streams its answer. The agent writes a file
there only if you approve it.

    turnstream [FLAGS] [--] [PROMPT ...]

Without a prompt, a chat starts if stdin is a terminal; otherwise the prompt is read from stdin.

    --provider NAME   offline, anthropic, openai, openai-responses, gemini or ollama
    --base-url URL    the base URL of another server; selects openai unless --provider is given
    --dialect NAME    how that server differs from OpenAI's Chat Completions: openai_compatible,
                      azure, openrouter, litellm, groq, deepseek, mistral, together, ollama,
                      llama_cpp, vllm or lm_studio; by default, the URL's host selects it
    --plain-http      sends the key to any server over unencrypted http, so others can read it on
                      the network; by default, only this machine receives it over plain http
    --model NAME      overrides the provider's default model
    --system TEXT     overrides the default system prompt
    --max-turns N     sends at most N requests to the model (20)
    --no-tools        gives the model no tools
    --mcp SERVER      gives the model the tools of an MCP server: its http(s) URL, or the command
                      that starts it, split into words like a shell does, without expansion; may
                      be repeated (feature `mcp`)
    --mcp-config FILE gives the model the tools of the servers in a JSON file with `mcpServers`, in
                      the format of other clients; may be repeated (feature `mcp`)
    --yes             approves every write and every call of an MCP server's tool. Without it, you
                      are asked on a terminal; elsewhere, or with --json, no call is approved and
                      the run ends as pending
    --session FILE    continues the conversation in the file and stores it there: in SQLite if the
                      file's extension is .db or .sqlite (feature `sqlite`), otherwise as JSON
                      lines. First, you are asked to approve pending calls. An unfinished run
                      continues if there is no new prompt; otherwise, its open calls are settled
    --json            prints each event as one line of JSON, and nothing else on stdout
    --offline-delay N slows the offline model down: it pauses for N milliseconds after each word, so
                      that there is time to interrupt it or to send it a message
    --help            prints this text

On a terminal: each approval question has a mark that the model does not know, and shows the file
and both ends of a long text. `y` approves the call; `always` approves it and the further calls of
this tool in this conversation; any other text is sent to the model as the reason why you did not.
`/grants` lists what you always allow, and `/revoke N` revokes the permission with that number. Text
that is typed before the question is not taken as its answer. Text that is typed during a run is
sent to the model with the next request; Enter on an empty line interrupts the model's answer, so
that the text is sent now, while running tools finish. If the run ends first, the text is back in
the input line of the chat. Lines that are pasted together are one prompt. Ctrl-C interrupts the
run; pressed again before the run has ended, it ends the program. At the prompt of the chat, Ctrl-C
discards the input line, and ends the chat if it is pressed twice within 2 seconds. Ctrl-D ends the
chat. With NO_COLOR or TERM=dumb, no escape sequences are printed.

Files: read through links that stay inside the working directory, never written through a link.

MCP servers: their processes run with your rights, and can access files outside the working
directory. They do not receive the API keys in the environment. Questions that a server asks the
user are declined.

Provider: --provider; else openai with --base-url or --dialect; else the provider of the first key
that is set, of ANTHROPIC_API_KEY, OPENAI_API_KEY and GEMINI_API_KEY; else openai with
OPENAI_BASE_URL; else the offline model, which needs no key and no network. ANTHROPIC_BASE_URL,
OPENAI_BASE_URL, GEMINI_BASE_URL and OLLAMA_BASE_URL are also read. With a vendor's dialect, the
vendor's own key is used, for example DEEPSEEK_API_KEY; if a base URL is set, OPENAI_API_KEY is the
fallback. Ollama is used over its own protocol, by default on this machine; OLLAMA_API_KEY is sent
if it is set.

Log: RUST_LOG=turnstream=debug writes each step of the run to stderr, without the text of messages,
calls and results. RUST_LOG=turnstream=trace adds the text.

Exit code: 0 if the run completed, 2 for bad usage, 130 if Ctrl-C ended the program, else 1.
";

/// The action that the command line selects.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Prints the help text.
    Help,
    /// Runs the agent.
    Run(Args),
}

/// An MCP server that the command line names.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerArg {
    /// An http(s) URL.
    Url(String),
    /// A program and its arguments.
    Command(Vec<String>),
    /// A JSON file that lists servers.
    ConfigFile(String),
}

/// The arguments for a run. A flag that is not given is `None` or `false`.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag")]
pub struct Args {
    /// The provider.
    pub provider: Option<ProviderName>,
    /// How the server differs from OpenAI's Chat Completions.
    pub dialect: Option<&'static Dialect>,
    /// The base URL of the server.
    pub base_url: Option<String>,
    /// Whether the key may be sent over plain http to another machine.
    pub plain_http: bool,
    /// The name of the model.
    pub model: Option<String>,
    /// The system prompt.
    pub system: Option<String>,
    /// The session's file.
    pub session_file: Option<String>,
    /// How many requests are sent at most.
    pub max_turns: Option<u32>,
    /// Whether the model has no tools.
    pub no_tools: bool,
    /// The MCP servers.
    pub servers: Vec<ServerArg>,
    /// Whether every call is approved.
    pub yes: bool,
    /// Whether events are printed as JSON.
    pub json: bool,
    /// The offline model's pause after each word.
    pub offline_delay: Option<Duration>,
    /// `None` if every word on the command line is a flag or a flag's value.
    pub prompt: Option<String>,
}

/// Parses the words after the program's name. An error is one line for the user.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let unknown = |flag: &str, _: &mut dyn FnMut() -> Result<String, String>| {
        Err(format!("there is no flag `{flag}`; see --help, or put `--` before the prompt"))
    };
    parse_with(words, &[], unknown)
}

/// Parses the words of a program that has further flags, and refuses these flags of the program
/// `turnstream`. `parse_further` receives a flag that `turnstream` does not have, and a function
/// that takes the flag's value.
pub fn parse_with(
    words: impl IntoIterator<Item = OsString>,
    refused: &[&str],
    mut parse_further: impl FnMut(
        &str,
        &mut dyn FnMut() -> Result<String, String>,
    ) -> Result<(), String>,
) -> Result<Command, String> {
    let mut args = Args::default();
    let mut prompt: Vec<String> = Vec::new();
    let mut words = words.into_iter().map(|word| {
        word.into_string().map_err(|word| format!("`{}` is not UTF-8", word.to_string_lossy()))
    });
    while let Some(word) = words.next() {
        let word = word?;
        if word == "--" {
            for word in words {
                prompt.push(word?);
            }
            break;
        }
        if !word.starts_with('-') || word == "-" {
            prompt.push(word);
            continue;
        }
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let alone = |value: &Option<String>| match value {
            None => Ok(()),
            Some(_) => Err(format!("`{flag}` takes no value")),
        };
        let mut given = || match value.clone() {
            Some(value) => Ok(value),
            None => match words.next().transpose()? {
                Some(value) if !value.starts_with("--") => Ok(value),
                _ => Err(format!("`{flag}` needs a value")),
            },
        };
        if refused.contains(&flag) {
            return Err(format!("`{flag}` is for `turnstream`"));
        }
        if MCP_FLAGS.contains(&flag) && cfg!(not(feature = "mcp")) {
            return Err(format!("`{flag}`: this build has no MCP: run it with --features mcp"));
        }
        match flag {
            "--help" | "-h" => return alone(&value).map(|()| Command::Help),
            "--provider" => args.provider = Some(ProviderName::parse(&given()?)?),
            "--dialect" => args.dialect = Some(parse_dialect(&given()?)?),
            "--base-url" => args.base_url = Some(ensure_not_empty(flag, given()?)?),
            "--plain-http" => args.plain_http = alone(&value).map(|()| true)?,
            "--model" => args.model = Some(ensure_not_empty(flag, given()?)?),
            "--session" => {
                let file = ensure_not_empty(flag, given()?)?;
                session::check_file_format(&file)?;
                args.session_file = Some(file);
            }
            "--system" => args.system = Some(given()?),
            "--max-turns" => {
                args.max_turns = Some(parse_value(flag, &given()?, "a number")?);
            }
            "--no-tools" => args.no_tools = alone(&value).map(|()| true)?,
            "--mcp" => args.servers.push(parse_server(&ensure_not_empty(flag, given()?)?)?),
            "--mcp-config" => {
                args.servers.push(ServerArg::ConfigFile(ensure_not_empty(flag, given()?)?));
            }
            "--yes" => args.yes = alone(&value).map(|()| true)?,
            "--json" => args.json = alone(&value).map(|()| true)?,
            "--offline-delay" => {
                let delay: u32 = parse_value(flag, &given()?, "a number of milliseconds")?;
                args.offline_delay = Some(Duration::from_millis(delay.into()));
            }
            _ => parse_further(flag, &mut given)?,
        }
    }
    if args.no_tools && !args.servers.is_empty() {
        return Err("--mcp needs tools: leave out `--no-tools`".to_owned());
    }
    if !prompt.is_empty() {
        let prompt = prompt.join(" ").trim().to_owned();
        if prompt.is_empty() {
            return Err("the prompt is empty".to_owned());
        }
        args.prompt = Some(prompt);
    }
    Ok(Command::Run(args))
}

/// Parses the URL or the command of a server. A command is not expanded, and no shell reads it.
fn parse_server(server: &str) -> Result<ServerArg, String> {
    let server = server.trim();
    let scheme = server.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        Some("http" | "https") => return Ok(ServerArg::Url(server.to_owned())),
        Some(other) if !other.is_empty() && other.chars().all(char::is_alphanumeric) => {
            return Err(format!("`--mcp` takes an http or https URL, or a command, not {other}"));
        }
        Some(_) | None => {}
    }
    match shlex::split(server) {
        None => Err(format!("`--mcp {server}` has an unterminated quote or escape")),
        Some(words) if words.first().is_none_or(String::is_empty) => {
            Err(format!("`--mcp {server}` does not name a program"))
        }
        Some(words) => Ok(ServerArg::Command(words)),
    }
}

/// Parses the value of a flag. `needed` describes the values that it takes.
pub fn parse_value<T: FromStr>(flag: &str, value: &str, needed: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| format!("`{flag}` needs {needed}, not `{value}`"))
}

/// Parses the address of a server. It may contain a password, so errors do not repeat it.
pub fn parse_address(flag: &str, address: String, schemes: &[&str]) -> Result<String, String> {
    match address.split_once("://").is_some_and(|(scheme, _)| schemes.contains(&scheme)) {
        true => Ok(address),
        false => Err(format!("`{flag}` needs an address that begins with {}://", schemes[0])),
    }
}

fn ensure_not_empty(flag: &str, value: String) -> Result<String, String> {
    match value.trim() {
        "" => Err(format!("`{flag}` is empty")),
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> Result<Command, String> {
        parse(words.iter().map(OsString::from))
    }

    fn parse_run_args(words: &[&str]) -> Args {
        match parse_words(words) {
            Ok(Command::Run(args)) => args,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn a_value_follows_its_flag_or_an_equals_sign() {
        let whole = Args {
            provider: Some(ProviderName::OpenAi),
            dialect: Some(&Dialect::GROQ),
            base_url: Some("http://localhost:1/v1?a=b".to_owned()),
            model: Some("m".to_owned()),
            system: Some(String::new()),
            session_file: Some("s.jsonl".to_owned()),
            max_turns: Some(3),
            no_tools: true,
            servers: Vec::new(),
            plain_http: true,
            yes: true,
            json: true,
            offline_delay: Some(Duration::from_millis(20)),
            prompt: Some("how are you".to_owned()),
        };
        let apart = "--provider openai --dialect groq --base-url http://localhost:1/v1?a=b \
                     --model m --system";
        let mut apart: Vec<&str> = apart.split(' ').collect();
        apart.extend([
            "",
            "--session",
            "s.jsonl",
            "--max-turns",
            "3",
            "--no-tools",
            "--plain-http",
            "--yes",
            "--json",
            "--offline-delay",
            "20",
            "how",
            "are",
            "you",
        ]);
        assert_eq!(parse_run_args(&apart), whole);
        let joined = "how --provider=openai --dialect=groq --base-url=http://localhost:1/v1?a=b \
                      --model=m are --system= --session=s.jsonl --max-turns=3 --no-tools --plain-http --yes --json \
                      --offline-delay=20 you";
        assert_eq!(parse_run_args(&joined.split(' ').collect::<Vec<_>>()), whole);
    }

    #[test]
    fn the_prompt_is_empty_without_arguments() {
        assert_eq!(parse_run_args(&[]), Args::default());
        assert_eq!(parse_run_args(&["--"]), Args::default());
    }

    #[test]
    fn two_dashes_end_the_flags() {
        assert_eq!(parse_run_args(&["--", "--json", "-x"]).prompt.as_deref(), Some("--json -x"));
        assert_eq!(parse_run_args(&["-"]).prompt.as_deref(), Some("-"));
    }

    #[test]
    fn the_help_flag_selects_help() {
        assert_eq!(parse_words(&["--json", "--help", "--nonsense"]), Ok(Command::Help));
        assert_eq!(parse_words(&["-h"]), Ok(Command::Help));
    }

    #[test]
    fn a_usage_error_names_the_wrong_argument() {
        for (words, wrong) in [
            (&["--nonsense"][..], "`--nonsense`"),
            (&["-3", "+", "4"], "`-3`"),
            (&["--model"], "`--model` needs a value"),
            (&["--model", "--json"], "`--model` needs a value"),
            (&["--model="], "`--model` is empty"),
            (&["--base-url", " "], "`--base-url` is empty"),
            (&["--session"], "`--session` needs a value"),
            (&["--session="], "`--session` is empty"),
            (&["--yes=no"], "`--yes` takes no value"),
            (&["--json=yes"], "`--json` takes no value"),
            (&["--help=me"], "`--help` takes no value"),
            (&["--max-turns", "many"], "not `many`"),
            (&["--max-turns=-1"], "not `-1`"),
            (&["--max-turns", "4294967296"], "4294967296"),
            (&["--offline-delay", "1s"], "a number of milliseconds, not `1s`"),
            (&["--offline-delay=-1"], "not `-1`"),
            (&["--provider", "acme"], "`acme`"),
            (&["--dialect", "acme"], "there is no dialect `acme`; there are openai_compatible, "),
            (&["", " "], "the prompt is empty"),
        ] {
            let error = parse_words(words).unwrap_err();
            assert!(error.contains(wrong), "{words:?}: {error}");
        }
    }

    #[test]
    fn a_server_is_a_url_or_a_command_line() {
        let words = |words: &[&str]| {
            ServerArg::Command(words.iter().map(|word| (*word).to_owned()).collect())
        };
        for (text, expected) in [
            ("server", words(&["server"])),
            (" a  b\tc ", words(&["a", "b", "c"])),
            (r#"a "b c" 'd "e"' f\ g "" "#, words(&["a", "b c", "d \"e\"", "f g", ""])),
            (
                "a $HOME ~ * `b` | c > d",
                words(&["a", "$HOME", "~", "*", "`b`", "|", "c", ">", "d"]),
            ),
            ("a http://b", words(&["a", "http://b"])),
            ("https://a.example/mcp", ServerArg::Url("https://a.example/mcp".to_owned())),
            ("HTTP://a.example", ServerArg::Url("HTTP://a.example".to_owned())),
        ] {
            assert_eq!(parse_server(text).as_ref(), Ok(&expected), "{text}");
        }
        for (text, wrong) in [
            ("a 'b", "`--mcp a 'b` has an unterminated quote or escape"),
            ("a \"b", "unterminated"),
            ("a \\", "unterminated"),
            ("'' b", "does not name a program"),
            ("# a comment", "does not name a program"),
            ("ws://a.example", "not ws"),
        ] {
            let error = parse_server(text).unwrap_err();
            assert!(error.contains(wrong), "{text}: {error}");
        }
    }

    #[cfg(feature = "mcp")]
    #[test]
    fn servers_are_kept_in_their_order_and_need_tools() {
        let args = parse_run_args(&["--mcp", "a b", "--mcp-config=c.json", "--mcp=http://d", "Hi"]);
        let [ServerArg::Command(_), ServerArg::ConfigFile(file), ServerArg::Url(_)] =
            args.servers.as_slice()
        else {
            panic!("{:?}", args.servers)
        };
        assert_eq!((file.as_str(), args.prompt.as_deref()), ("c.json", Some("Hi")));
        for (words, wrong) in [
            (&["--mcp"][..], "`--mcp` needs a value"),
            (&["--mcp", " "], "`--mcp` is empty"),
            (&["--mcp", "a 'b"], "unterminated"),
            (&["--mcp-config="], "`--mcp-config` is empty"),
            (&["--mcp", "a", "--no-tools"], "--mcp needs tools"),
            (&["--no-tools", "--mcp-config", "a"], "--mcp needs tools"),
        ] {
            let error = parse_words(words).unwrap_err();
            assert!(error.contains(wrong), "{words:?}: {error}");
        }
    }

    #[cfg(not(feature = "mcp"))]
    #[test]
    fn without_the_feature_the_flags_of_mcp_are_bad_usage() {
        for words in [&["--mcp", "a"][..], &["--mcp=a"], &["--mcp"], &["--mcp-config", "a"]] {
            let error = parse_words(words).unwrap_err();
            assert!(
                error.ends_with("this build has no MCP: run it with --features mcp"),
                "{error}"
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_argument_that_is_not_utf_8_is_bad_usage() {
        use std::os::unix::ffi::OsStringExt;
        let word = OsString::from_vec(vec![b'a', 0xff]);
        assert!(parse([word]).unwrap_err().contains("not UTF-8"));
    }
}
