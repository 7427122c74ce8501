//! An agent on the command line that can read the working directory, write a file there if the user
//! approves, and call the tools of MCP servers.
//!
//! ```text
//! cargo run --example agent -- "How many lines of Rust are in src, and which file is the longest?"
//! ```
//!
//! Without an API key it uses the offline model, whose replies are scripted. `--help` lists all
//! flags.

mod approval;
mod args;
mod chat;
mod ctrl_c;
mod error_context;
mod lines;
mod offline;
mod provider;
mod render;
#[cfg_attr(not(feature = "mcp"), path = "no_servers.rs")]
mod servers;
mod session;
mod text;
mod tools;
mod usage;
mod wrap;

use std::env;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;
use turnstream::agent::Limits;
use turnstream::event::EndReason;
use turnstream::item::{Content, PendingCall, ToolCall};
use turnstream::session::{Session, SessionRun, SessionState};
use turnstream::tool::Verdict;
use turnstream::{Agent, Error, ErrorKind, Event, History, Outcome, TurnEvent};

use approval::ApprovalMode;
use args::{Args, Command};
use ctrl_c::CtrlC;
use error_context::ErrorContext;
use lines::InputReader;
use provider::{ProviderChoice, ProviderName};
use render::{EventPrinter, TextPrinter};
use servers::Servers;
use tools::Root;

/// The size limit of a prompt on stdin; a longer one is probably a mistake.
const MAX_PROMPT_BYTES: u64 = 4 * 1024 * 1024;

/// The reason why the program ends, as its exit code.
#[derive(Clone, Copy, PartialEq)]
enum ExitStatus {
    Done = 0,
    Failed = 1,
    BadUsage = 2,
    /// Ended by Ctrl-C, with the exit code that shells use for it.
    Quit = 130,
}

fn main() {
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
    let model = match choice.name {
        ProviderName::Offline => "the offline model, whose words are scripted".to_owned(),
        name => format!("{} ({})", choice.model, name.as_str()),
    };
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
                let approved =
                    |(_, verdict): &&(PendingCall, Verdict)| *verdict == Verdict::Approve;
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

/// The terminal: the program's output and the user's input.
struct UserInterface {
    printer: EventPrinter,
    approval: ApprovalMode,
    /// The root directory of the files in approval questions.
    root: Root,
    error_context: ErrorContext,
    input: InputReader,
    /// Whether text that is typed during a run is sent to the model.
    can_steer: bool,
    /// Whether the user pressed Ctrl-D during a run.
    is_input_ended: bool,
    ctrl_c: CtrlC,
    /// Text that was typed for the model, and came too late for it.
    undelivered: Vec<String>,
}

/// Polls a run to its end and prints its events. Dropping the future stops the run.
///
/// # Errors
///
/// If the session can no longer be written, which ends the run.
async fn drive_run(mut run: SessionRun, user: &mut UserInterface) -> Result<ExitStatus, Error> {
    let handle = run.handle();
    let UserInterface {
        printer: screen,
        approval,
        root,
        error_context,
        input: lines,
        can_steer: types,
        is_input_ended: ended,
        ctrl_c,
        undelivered,
    } = user;
    let mut silence = ResponseTimer::default();
    let mut interrupted = false;
    let mut typing = *types;
    // The calls that the user approved and that have not finished.
    let mut allowed: Vec<ToolCall> = Vec::new();
    loop {
        let event = tokio::select! {
            biased;
            () = ctrl_c.pressed() => {
                if interrupted {
                    // The cursor is at the end of a line.
                    let _ = writeln!(io::stderr());
                    return Ok(ExitStatus::Quit);
                }
                interrupted = true;
                run.interrupt();
                continue;
            }
            entered = lines.next_entry(), if typing => {
                match entered {
                    Ok(Some(text)) if text.trim().is_empty() => {}
                    Ok(Some(text)) => match run.steer(text.trim()) {
                        Ok(_) => {
                            if let Err(error) = screen.report_steered(&text) {
                                return Ok(stdout_error_exit(&error));
                            }
                        }
                        Err(_) => undelivered.push(text),
                    },
                    Ok(None) | Err(_) => (typing, *ended) = (false, true),
                }
                continue;
            }
            event = run.next() => event,
            waited = silence.next_wait_report() => {
                if let Err(error) = screen.report_wait(waited) {
                    return Ok(stdout_error_exit(&error));
                }
                continue;
            }
        };
        let Some(event) = event.transpose()? else { return Ok(ExitStatus::Failed) };
        silence.observe(&event);
        if let Err(error) = screen.print_event(&event) {
            return Ok(stdout_error_exit(&error));
        }
        if let Some(result) = event.tool_output() {
            allowed.retain(|call| call.call_id != result.call_id);
        }
        if let Some(call) = event.approval_request() {
            let shown = tools::describe_call(root, &call.to_tool_call(), &allowed);
            let decided = tokio::select! {
                biased;
                () = ctrl_c.pressed() => {
                    // The cursor is at the end of the question, so start a new line.
                    let _ = writeln!(io::stderr());
                    interrupted = true;
                    run.interrupt();
                    Ok(())
                }
                verdict = approval.verdict(&shown, lines) => match verdict {
                    Some(verdict) => {
                        if verdict == Verdict::Approve {
                            allowed.push(call.to_tool_call());
                        }
                        handle.submit_verdict(&call, verdict)
                    }
                    None => Ok(()),
                },
            };
            if let Err(error) = decided {
                render::print_error(error.message());
            }
        }
        let Some(outcome) = event.outcome() else { continue };
        let texts = outcome.undelivered.iter().flat_map(|late| &late.items);
        let texts = texts.filter_map(|item| item.as_user().map(Content::text));
        undelivered.extend(texts);
        return Ok(report_end(outcome, &run.history(), error_context));
    }
}

/// Prints how the run ended, unless it completed as usual.
fn report_end(outcome: &Outcome, history: &History, error_context: &ErrorContext) -> ExitStatus {
    match outcome.reason {
        EndReason::Completed => {
            if let Some(word) = &outcome.unknown_stop_reason {
                render::print_unknown_stop_reason(word);
            }
            return ExitStatus::Done;
        }
        EndReason::Interrupted(_) => render::print_interrupted(history),
        EndReason::Pending => render::print_pending(&outcome.pending),
        _ => render::print_failure(outcome, error_context),
    }
    ExitStatus::Failed
}

/// Stdout can no longer be written.
fn stdout_error_exit(error: &io::Error) -> ExitStatus {
    if error.kind() != io::ErrorKind::BrokenPipe {
        render::print_error(&format!("stdout cannot be written: {error}"));
    }
    ExitStatus::Failed
}

/// Measures how long the model has taken to begin its answer.
#[derive(Default)]
struct ResponseTimer {
    /// When the request was sent, and how many times its wait was reported.
    waiting_since: Option<(Instant, u32)>,
}

impl ResponseTimer {
    /// The interval at which a wait is reported.
    const REPORT_INTERVAL: Duration = Duration::from_secs(10);

    fn observe(&mut self, event: &Event) {
        self.waiting_since = match event {
            // The wait for a retry is counted from when the retry is sent.
            Event::Turn(TurnEvent::Retrying { delay_ms, .. }) => {
                let again = Instant::now().checked_add(Duration::from_millis(*delay_ms));
                again.map(|again| (again, 0))
            }
            Event::TurnStarted { .. } => Some((Instant::now(), 0)),
            _ => None,
        };
    }

    /// Completes when the model has not begun its answer for another interval.
    async fn next_wait_report(&mut self) -> Duration {
        let Some((since, reported)) = &mut self.waiting_since else {
            return std::future::pending().await;
        };
        let waited = Self::REPORT_INTERVAL * (*reported + 1);
        tokio::time::sleep_until(*since + waited).await;
        *reported += 1;
        waited
    }
}
