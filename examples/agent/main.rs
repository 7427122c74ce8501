//! An agent on the command line that can look at the working directory, and write a file there if
//! it is allowed to.
//!
//! ```text
//! cargo run --example agent -- "How many lines of Rust are in src, and which file is the longest?"
//! ```
//!
//! Without a key it asks the offline model, whose words are scripted. `--help` tells the rest.

mod approval;
mod args;
mod ctrl_c;
mod lines;
mod offline;
mod provider;
mod render;
mod session;
mod text;
mod tools;

use std::env;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;
use turnstream::event::EndReason;
use turnstream::item::{Content, PendingCall, ToolCall};
use turnstream::session::{Session, SessionRun, SessionState};
use turnstream::tool::Verdict;
use turnstream::{Agent, Error, ErrorKind, Event, TurnEvent};

use approval::Approval;
use args::{Args, Command};
use ctrl_c::CtrlC;
use lines::Lines;
use provider::{Choice, Name};
use render::{Human, Screen};
use tools::Root;

/// A longer prompt on stdin is taken for a mistake.
const LONGEST_PROMPT: u64 = 4 * 1024 * 1024;

/// Why the program ends, as its exit code.
#[derive(Clone, Copy, PartialEq)]
enum Exit {
    Done = 0,
    Failed = 1,
    BadUsage = 2,
    /// By Ctrl-C, as shells count it.
    Quit = 130,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let exit = start().await;
    // A thread that waits for a line of stdin would keep the runtime from shutting down.
    std::process::exit(exit as i32);
}

async fn start() -> Exit {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let command = args::parse(env::args_os().skip(1));
    let decided = command.and_then(|command| match command {
        Command::Help => Ok(None),
        Command::Run(args) => {
            let choice = Choice::new(&args, variable)?;
            let prompt = prompt(&args)?;
            match &prompt {
                Prompt::Missing(why) if args.session.is_none() => Err(why.clone()),
                _ => Ok(Some((args, choice, prompt))),
            }
        }
    });
    let (args, choice, prompt) = match decided {
        Ok(Some(decided)) => decided,
        Ok(None) => {
            let mut out = io::stdout();
            let printed = out.write_all(args::HELP.as_bytes()).and_then(|()| out.flush());
            return printed.map_or(Exit::Failed, |()| Exit::Done);
        }
        Err(message) => {
            render::error(&message);
            return Exit::BadUsage;
        }
    };
    let is_terminal = io::stdin().is_terminal();
    let approval = match args.no_tools {
        // There is nothing to ask about.
        true => Approval::Suspend,
        false => Approval::new(&args, is_terminal && io::stderr().is_terminal()),
    };
    let screen = match args.json {
        true => Screen::Json,
        false => {
            let plain =
                variable("NO_COLOR").is_some() || variable("TERM").as_deref() == Some("dumb");
            Screen::Human(Human::new(plain, choice.name == Name::Offline, approval.clone()))
        }
    };
    let variable = choice.variable;
    let title = format!("{}, {}", choice.name.as_str(), choice.model);
    let made = async {
        let here = env::current_dir().map_err(|error| {
            let message = format!("the working directory cannot be read: {error}");
            Error::new(ErrorKind::Other, message)
        })?;
        let root = Root::new(here, args.session.as_ref().map(PathBuf::from));
        Ok::<_, Error>((agent(&args, choice, &approval, root.clone()).await?, root))
    };
    let (agent, root) = match made.await {
        Ok(made) => made,
        Err(error) => {
            render::error(error.message());
            return match error.kind() {
                // A base URL that is none, for example.
                ErrorKind::InvalidRequest => Exit::BadUsage,
                _ => Exit::Failed,
            };
        }
    };
    let mut user = User {
        screen,
        approval,
        root,
        variable,
        lines: Lines::new(),
        // With stdout elsewhere a pager may read the keys.
        types: is_terminal && !args.json && io::stdout().is_terminal(),
        ended: false,
        ctrl_c: CtrlC::new(),
        undelivered: Vec::new(),
    };
    let exit = async {
        let session = session::open(args.session.as_deref()).await?;
        if let Some(notice) = user.approval.notice() {
            let _ = writeln!(io::stderr(), "{notice}");
        }
        if let Some(exit) = take_up(&session, &agent, &mut user, &prompt).await? {
            return Ok(exit);
        }
        match prompt {
            Prompt::Given(prompt) => {
                let exit = drive(session.run(&agent, prompt).await?, &mut user).await;
                user.undelivered.drain(..).for_each(|text| render::undelivered(&text));
                exit
            }
            Prompt::Chat => chat(&session, &agent, &mut user, &title).await,
            Prompt::Missing(why) => {
                render::error(&why);
                Ok(Exit::BadUsage)
            }
        }
    };
    exit.await.unwrap_or_else(|error| {
        render::error(&session::shown(&error));
        Exit::Failed
    })
}

/// Reports what the last run of a session has left. The user is asked about calls that wait, and with
/// the verdicts the run continues; one that was broken off continues unless there is a new prompt.
/// `Some` if the program ends then.
async fn take_up(
    session: &Session,
    agent: &Agent,
    user: &mut User,
    prompt: &Prompt,
) -> Result<Option<Exit>, Error> {
    let state = session.state();
    if let Some(left) = session::left(&state) {
        render::notice(&left);
    }
    match &state {
        SessionState::Idle => {}
        SessionState::Pending { calls } => {
            user.screen.expect(calls.iter().map(PendingCall::to_tool_call).collect());
        }
        SessionState::Unfinished { open_calls: open } => user.screen.expect(open.clone()),
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
                let shown = tools::describe(&user.root, &call.to_tool_call(), &allowed);
                let verdict = tokio::select! {
                    biased;
                    () = user.ctrl_c.pressed() => {
                        let _ = writeln!(io::stderr());
                        return Ok(Some(Exit::Quit));
                    }
                    verdict = user.approval.verdict(&shown, &mut user.lines) => verdict,
                };
                let Some(verdict) = verdict else { break };
                verdicts.push((call.clone(), verdict));
            }
            match prompt {
                Prompt::Missing(_) if verdicts.len() < calls.len() => {
                    render::pending(&calls);
                    return Ok(Some(Exit::Failed));
                }
                Prompt::Given(_) | Prompt::Chat if verdicts.len() < calls.len() => return Ok(None),
                Prompt::Given(_) | Prompt::Chat | Prompt::Missing(_) => verdicts,
            }
        }
    };
    let exit = drive(session.resume(agent, verdicts).await?, user).await?;
    user.undelivered.drain(..).for_each(|text| render::undelivered(&text));
    Ok(match prompt {
        Prompt::Missing(_) => Some(exit),
        Prompt::Given(_) | Prompt::Chat => (exit == Exit::Quit).then_some(exit),
    })
}

/// What to ask.
enum Prompt {
    Given(String),
    /// The user says it, again and again.
    Chat,
    /// There is nothing, and this is what is wrong with that, unless a session has something left.
    Missing(String),
}

fn prompt(args: &Args) -> Result<Prompt, String> {
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
    let read = stdin.lock().take(LONGEST_PROMPT + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("stdin cannot be read: {error}"))?;
    if bytes.len() as u64 > LONGEST_PROMPT {
        return Err("the prompt on stdin is too long".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "the prompt on stdin is not UTF-8")?;
    Ok(match text.trim() {
        "" => Prompt::Missing("there is no prompt, and stdin is empty".to_owned()),
        prompt => Prompt::Given(prompt.to_owned()),
    })
}

async fn agent(
    args: &Args,
    choice: Choice,
    approval: &Approval,
    root: Root,
) -> Result<Agent, Error> {
    let provider = choice.connect().await?;
    let system = match (&args.system, args.no_tools) {
        (Some(system), _) => system,
        (None, true) => "Answer briefly.",
        (None, false) => {
            "Answer briefly. Your tools look at the user's working directory; use them rather \
             than guess, and say in which file and line something stands. Write a file only if \
             the user wants one written."
        }
    };
    let mut agent = Agent::new(provider).with_system(system);
    if !args.no_tools {
        agent = agent.with_toolkit(tools::kit(root));
    }
    if let Some(turns) = args.max_turns {
        agent = agent.with_max_turns(turns);
    }
    Ok(if approval.is_interactive() { agent.interactive() } else { agent })
}

/// The user: what is shown, and what comes back.
struct User {
    screen: Screen,
    approval: Approval,
    /// Where the files are that the user is asked about.
    root: Root,
    /// The environment variable of the key.
    variable: &'static str,
    lines: Lines,
    /// Whether what is typed during a run is for the model.
    types: bool,
    /// Whether the user pressed Ctrl-D during a run.
    ended: bool,
    ctrl_c: CtrlC,
    /// What was typed for the model, and came too late for it.
    undelivered: Vec<String>,
}

/// Pulls a run to its end and prints what comes. Dropping the run would stop it at any point.
///
/// # Errors
///
/// If it cannot be kept any more, and has ended for that.
async fn drive(mut run: SessionRun, user: &mut User) -> Result<Exit, Error> {
    let handle = run.handle();
    let User { screen, approval, root, variable, lines, types, ended, ctrl_c, undelivered } = user;
    let mut silence = Silence::default();
    let mut interrupted = false;
    let mut typing = *types;
    // The calls that the user allowed and that have not ended.
    let mut allowed: Vec<ToolCall> = Vec::new();
    loop {
        let event = tokio::select! {
            biased;
            () = ctrl_c.pressed() => {
                if interrupted {
                    return Ok(Exit::Quit);
                }
                interrupted = true;
                run.interrupt();
                continue;
            }
            entered = lines.next(), if typing => {
                match entered {
                    Ok(Some(text)) if text.trim().is_empty() => {}
                    Ok(Some(text)) => match run.steer(text.trim()) {
                        Ok(_) => {
                            if let Err(error) = screen.steered(&text) {
                                return Ok(closed(&error));
                            }
                        }
                        Err(_) => undelivered.push(text),
                    },
                    Ok(None) | Err(_) => (typing, *ended) = (false, true),
                }
                continue;
            }
            event = run.next() => event,
            waited = silence.lasts() => {
                if let Err(error) = screen.still_waiting(waited) {
                    return Ok(closed(&error));
                }
                continue;
            }
        };
        let Some(event) = event.transpose()? else { return Ok(Exit::Failed) };
        silence.observe(&event);
        if let Err(error) = screen.show(&event) {
            return Ok(closed(&error));
        }
        if let Some(result) = event.tool_output() {
            allowed.retain(|call| call.call_id != result.call_id);
        }
        if let Some(call) = event.as_approval_request() {
            let shown = tools::describe(root, call, &allowed);
            let decided = tokio::select! {
                biased;
                () = ctrl_c.pressed() => {
                    // The question stands on an open line.
                    let _ = writeln!(io::stderr());
                    interrupted = true;
                    run.interrupt();
                    Ok(())
                }
                verdict = approval.verdict(&shown, lines) => match verdict {
                    Some(verdict) => {
                        if verdict == Verdict::Approve {
                            allowed.push(call.clone());
                        }
                        handle.submit_verdict(call, verdict)
                    }
                    None => Ok(()),
                },
            };
            if let Err(error) = decided {
                render::error(error.message());
            }
        }
        let Some(outcome) = event.outcome() else { continue };
        let texts = outcome.undelivered.iter().flat_map(|late| &late.items);
        let texts = texts.filter_map(|item| item.as_user().map(Content::text));
        undelivered.extend(texts);
        match outcome.reason {
            EndReason::Completed => return Ok(Exit::Done),
            EndReason::Interrupted(_) => render::interrupted(&run.history()),
            EndReason::Pending => render::pending(&outcome.pending),
            _ => render::failed(outcome, variable),
        }
        return Ok(Exit::Failed);
    }
}

/// Stdout cannot be written any more.
fn closed(error: &io::Error) -> Exit {
    if error.kind() != io::ErrorKind::BrokenPipe {
        render::error(&format!("stdout cannot be written: {error}"));
    }
    Exit::Failed
}

/// How long the model has not begun its answer.
#[derive(Default)]
struct Silence {
    /// When the request was sent, and how many times its wait was reported.
    since: Option<(Instant, u32)>,
}

impl Silence {
    /// After so long a wait is reported, and again after each so long.
    const LONG: Duration = Duration::from_secs(10);

    fn observe(&mut self, event: &Event) {
        self.since = match event {
            // A retry begins when its own wait is over.
            Event::Turn(TurnEvent::Retrying { delay_ms, .. }) => {
                let again = Instant::now().checked_add(Duration::from_millis(*delay_ms));
                again.map(|again| (again, 0))
            }
            Event::TurnStarted { .. } => Some((Instant::now(), 0)),
            _ => None,
        };
    }

    /// Ready when the model has not begun its answer for another long while.
    async fn lasts(&mut self) -> Duration {
        let Some((since, reported)) = &mut self.since else { return std::future::pending().await };
        let waited = Self::LONG * (*reported + 1);
        tokio::time::sleep_until(*since + waited).await;
        *reported += 1;
        waited
    }
}

/// One run for each thing that the user says, in one session.
async fn chat(
    session: &Session,
    agent: &Agent,
    user: &mut User,
    title: &str,
) -> Result<Exit, Error> {
    let title = text::one_line(title, 200);
    let _ = writeln!(
        io::stderr(),
        "{title}. What you type during a run is for the model. Ctrl-C ends a run, Ctrl-D the chat."
    );
    while !std::mem::take(&mut user.ended) {
        let _ = write!(io::stderr(), "\n> ").and_then(|()| io::stderr().flush());
        let read = tokio::select! {
            biased;
            () = user.ctrl_c.pressed() => {
                let _ = writeln!(io::stderr());
                return Ok(Exit::Quit);
            }
            read = user.lines.next() => read,
        };
        let mut prompt = match read {
            Ok(None) => {
                let _ = writeln!(io::stderr());
                return Ok(Exit::Done);
            }
            Ok(Some(text)) => text,
            Err(error) => {
                render::error(&format!("stdin cannot be read: {error}"));
                return Ok(Exit::Failed);
            }
        };
        while !prompt.trim().is_empty() {
            let exit = drive(session.run(agent, prompt.trim()).await?, user).await?;
            if exit == Exit::Quit {
                return Ok(Exit::Quit);
            }
            // What came too late for a run begins the next one, unless it was interrupted or failed.
            prompt = std::mem::take(&mut user.undelivered).join("\n");
            if exit != Exit::Done && !prompt.is_empty() {
                render::undelivered(&prompt);
                break;
            }
        }
    }
    Ok(Exit::Done)
}
