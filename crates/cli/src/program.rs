//! The program from its start to its end: the prompt, the agent, its servers and the session.

use std::env;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use turnstream::agent::Limits;
use turnstream::item::{PendingCall, ToolCall};
use turnstream::session::{Session, SessionState};
use turnstream::tool::Verdict;
use turnstream::{Agent, Error, ErrorKind};

use crate::approval::ApprovalMode;
use crate::args::{self, Args, Command};
use crate::ctrl_c::CtrlC;
use crate::error_context::ErrorContext;
use crate::lines::InputReader;
use crate::provider::{ProviderChoice, ProviderName};
use crate::render::{self, EventPrinter, TextPrinter};
use crate::run::{ExitStatus, UserInterface, drive_run};
use crate::servers::Servers;
use crate::tools::{self, Root};
use crate::{chat, session, wrap};

/// The size limit of a prompt on stdin; a longer one is probably a mistake.
const MAX_PROMPT_BYTES: u64 = 4 * 1024 * 1024;

/// Runs the program, and ends the process with its exit code.
pub fn main() {
    start_log();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let exit = match runtime {
        Ok(runtime) => {
            let exit = runtime.block_on(run_program());
            // Drops the runtime's tasks, and with them the process of a server that is still
            // starting. A thread that blocks on stdin is not waited for.
            runtime.shutdown_background();
            exit
        }
        Err(error) => {
            render::print_error(&format!("the runtime cannot be started: {error}"));
            ExitStatus::Failed
        }
    };
    std::process::exit(exit as i32);
}

/// Writes a log of the run to stderr if the environment variable `RUST_LOG` selects what to log.
fn start_log() {
    let Ok(filter) = env::var("RUST_LOG") else { return };
    if filter.is_empty() {
        return;
    }
    match filter.parse::<Targets>() {
        Ok(targets) => {
            let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
            tracing_subscriber::registry().with(lines).with(targets).init();
        }
        Err(error) => render::print_error(&format!("`RUST_LOG` is ignored: {error}")),
    }
}

async fn run_program() -> ExitStatus {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let command = args::parse(env::args_os().skip(1));
    let decided = command.and_then(|command| match command {
        Command::Help => Ok(None),
        Command::Run(args) => {
            let choice = ProviderChoice::from_args(&args, variable)?;
            let servers = Servers::new(&args.servers)?;
            let prompt = read_prompt(&args)?;
            match &prompt {
                Prompt::Missing(why) if args.session_file.is_none() => Err(why.clone()),
                _ => Ok(Some((args, choice, servers, prompt))),
            }
        }
    });
    let (args, choice, servers, prompt) = match decided {
        Ok(Some(decided)) => decided,
        Ok(None) => {
            let mut out = io::stdout();
            let help = wrap::reflow_help(args::HELP, wrap::stdout_columns());
            let printed = out.write_all(help.as_bytes()).and_then(|()| out.flush());
            return printed.map_or(ExitStatus::Failed, |()| ExitStatus::Done);
        }
        Err(message) => {
            render::print_error(&message);
            return ExitStatus::BadUsage;
        }
    };
    let exit = run_with_servers(&args, choice, &servers, prompt).await;
    if exit == ExitStatus::Quit {
        wrap::print_lines("ended by Ctrl-C");
    }
    servers.close().await;
    exit
}

/// Runs the program with its MCP servers, which the caller closes.
async fn run_with_servers(
    args: &Args,
    choice: ProviderChoice,
    servers: &Servers,
    prompt: Prompt,
) -> ExitStatus {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let is_terminal = io::stdin().is_terminal();
    let approval = match args.no_tools {
        // No tool needs approval.
        true => ApprovalMode::Suspend,
        false => ApprovalMode::new(args, is_terminal && io::stderr().is_terminal()),
    };
    let screen = match args.json {
        true => EventPrinter::Json,
        false => {
            let plain =
                variable("NO_COLOR").is_some() || variable("TERM").as_deref() == Some("dumb");
            EventPrinter::Text(TextPrinter::new(
                plain,
                choice.name == ProviderName::Offline,
                approval.clone(),
            ))
        }
    };
    let mut ctrl_c = CtrlC::new();
    let started = tokio::select! {
        biased;
        () = ctrl_c.pressed() => {
            let _ = writeln!(io::stderr());
            return ExitStatus::Quit;
        }
        started = servers.start() => started,
    };
    let error_context = ErrorContext::new(&choice);
    let made = async {
        let here = env::current_dir().map_err(|error| {
            let message = format!("the working directory cannot be read: {error}");
            Error::new(ErrorKind::Other, message)
        })?;
        let mut setup = vec![describe_run(&choice, args, &here)];
        let root = Root::new(here, args.session_file.as_ref().map(PathBuf::from));
        let agent = build_agent(args, choice, servers, &approval, root.clone()).await?;
        setup.extend(started?);
        Ok::<_, Error>((agent, root, setup))
    };
    let (agent, root, setup) = match made.await {
        Ok(made) => made,
        Err(error) => {
            render::print_error(error.message());
            return match error.kind() {
                // An invalid base URL, for example.
                ErrorKind::InvalidRequest => ExitStatus::BadUsage,
                _ => ExitStatus::Failed,
            };
        }
    };
    let mut user = UserInterface {
        printer: screen,
        approval,
        root,
        error_context,
        input: InputReader::new(),
        // If stdout is redirected, a pager may read the keys.
        can_steer: is_terminal && !args.json && io::stdout().is_terminal(),
        is_input_ended: false,
        ctrl_c,
        undelivered: Vec::new(),
    };
    let exit = async {
        let session = session::open(args.session_file.as_deref()).await?;
        let has_run =
            !matches!((&prompt, session.state()), (Prompt::Missing(_), SessionState::Idle));
        for line in setup.iter().filter(|_| has_run) {
            // Nothing was written to stdout so far, so a write error cannot matter.
            let _ = user.printer.report_setup(line);
        }
        if let Some(notice) = user.approval.startup_notice(!servers.is_empty()) {
            wrap::print_lines(&notice);
        }
        if let Some(exit) = resume_session(&session, &agent, &mut user, &prompt).await? {
            return Ok(exit);
        }
        match prompt {
            Prompt::Given(prompt) => {
                let exit = drive_run(session.run(&agent, prompt).await?, &mut user).await;
                user.undelivered.drain(..).for_each(|text| render::print_undelivered(&text));
                exit
            }
            Prompt::Chat => chat::run_chat(&session, &agent, &mut user).await,
            Prompt::Missing(why) => {
                render::print_error(&why);
                Ok(ExitStatus::BadUsage)
            }
        }
    };
    exit.await.unwrap_or_else(|error| {
        render::print_error(&session::store_error_message(&error));
        ExitStatus::Failed
    })
}

/// Describes what is about to run, for the first line of the output.
fn describe_run(choice: &ProviderChoice, args: &Args, directory: &Path) -> String {
    let model = choice.describe();
    match args.no_tools {
        true => format!("agent: {model}, without tools"),
        false => format!("agent: {model}, in {}", directory.display()),
    }
}

/// Reports the state in which a session's last run was left. The user decides on pending calls, and
/// the run continues with the verdicts; an unfinished run continues unless there is a new prompt.
/// Returns `Some` if the program ends then.
async fn resume_session(
    session: &Session,
    agent: &Agent,
    user: &mut UserInterface,
    prompt: &Prompt,
) -> Result<Option<ExitStatus>, Error> {
    let state = session.state();
    if let Some(left) = session::resume_notice(&state) {
        render::print_session_notice(&left);
    }
    let verdicts = match state {
        SessionState::Idle => return Ok(None),
        SessionState::Unfinished { .. } => match prompt {
            Prompt::Given(_) => return Ok(None),
            Prompt::Chat | Prompt::Missing(_) => Vec::new(),
        },
        SessionState::Pending { calls } => {
            let mut verdicts = Vec::new();
            for call in &calls {
                let approved = |(_, verdict): &&(PendingCall, Verdict)| verdict.is_approval();
                let allowed = verdicts.iter().filter(approved).map(|(call, _)| call.to_tool_call());
                let allowed: Vec<ToolCall> = allowed.collect();
                let shown = tools::describe_call(&user.root, &call.to_tool_call(), &allowed);
                let verdict = tokio::select! {
                    biased;
                    () = user.ctrl_c.pressed() => {
                        let _ = writeln!(io::stderr());
                        match prompt {
                            // The chat starts.
                            Prompt::Chat => None,
                            Prompt::Given(_) | Prompt::Missing(_) => {
                                return Ok(Some(ExitStatus::Quit));
                            }
                        }
                    }
                    verdict = user.approval.verdict(&shown, &mut user.input) => verdict,
                };
                let Some(verdict) = verdict else { break };
                verdicts.push((call.clone(), verdict));
            }
            match prompt {
                Prompt::Missing(_) if verdicts.len() < calls.len() => {
                    render::print_pending(&calls);
                    return Ok(Some(ExitStatus::Failed));
                }
                Prompt::Given(_) if verdicts.len() < calls.len() => return Ok(None),
                Prompt::Chat if verdicts.len() < calls.len() => {
                    let left = "the calls do not run unless you restart the program before your \
                                next message";
                    render::print_session_notice(left);
                    return Ok(None);
                }
                Prompt::Given(_) | Prompt::Chat | Prompt::Missing(_) => verdicts,
            }
        }
    };
    let exit = drive_run(session.resume(agent, verdicts).await?, user).await?;
    if exit == ExitStatus::Quit || !matches!(prompt, Prompt::Chat) {
        user.undelivered.drain(..).for_each(|text| render::print_undelivered(&text));
    }
    Ok(match prompt {
        Prompt::Missing(_) => Some(exit),
        Prompt::Given(_) | Prompt::Chat => (exit == ExitStatus::Quit).then_some(exit),
    })
}

/// The source of the prompt.
enum Prompt {
    Given(String),
    /// The user types each prompt.
    Chat,
    /// The prompt is missing. The message says why; this is not an error if a session has a run to
    /// resume.
    Missing(String),
}

fn read_prompt(args: &Args) -> Result<Prompt, String> {
    if let Some(prompt) = &args.prompt {
        return Ok(Prompt::Given(prompt.clone()));
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Ok(match args.json {
            true => Prompt::Missing("`--json` needs a prompt".to_owned()),
            false => Prompt::Chat,
        });
    }
    let mut bytes = Vec::new();
    let read = stdin.lock().take(MAX_PROMPT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("stdin cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_PROMPT_BYTES {
        return Err("the prompt on stdin is too long".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "the prompt on stdin is not UTF-8")?;
    Ok(match text.trim() {
        "" => Prompt::Missing("there is no prompt, and stdin is empty".to_owned()),
        prompt => Prompt::Given(prompt.to_owned()),
    })
}

async fn build_agent(
    args: &Args,
    choice: ProviderChoice,
    servers: &Servers,
    approval: &ApprovalMode,
    root: Root,
) -> Result<Agent, Error> {
    let provider = choice.build_provider().await?;
    let system = match (&args.system, args.no_tools) {
        (Some(system), _) => system,
        (None, true) => "Answer briefly.",
        (None, false) => {
            "Answer briefly. Your tools read the user's working directory; use them rather than \
             guess, and cite files and line numbers. Write a file only if the user asks for it."
        }
    };
    let of_servers = match servers.is_empty() || args.system.is_some() {
        true => "",
        false => " Tools with `__` in their names belong to MCP servers, and access other data.",
    };
    let mut agent = Agent::new(provider).with_system(format!("{system}{of_servers}"));
    if !args.no_tools {
        agent = servers.add_tools(agent.with_toolkit(tools::toolkit(root)));
    }
    agent = agent.with_limits(Limits { max_turns: args.max_turns, ..Limits::default() });
    Ok(if approval.is_interactive() { agent.interactive() } else { agent })
}
