//! A scripted MCP server over stdin and stdout, for trying out a client without a network.
//!
//! ```text
//! cargo run -p turnstream-mcp --example mcp_server -- --help
//! ```

use std::io::{self, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use turnstream_testing::mcp::{McpAnswer, McpEra, McpFault, McpServer, McpTool};

const HELP: &str = "\
A scripted MCP server. The results of its tools are made up, especially the weather.

Usage: mcp_server [OPTIONS]

  --era both|modern|legacy|silent    the protocol eras that it supports; `silent` is a legacy
                                     server that never answers server/discover [both]
  --tools demo|weather|many          all tools, only `weather`, or 200 more [demo]
  --fault NAME[:N]                   injects a fault; may be repeated
  --http                             serves HTTP on 127.0.0.1 until stdin ends, and prints the
                                     address as the first line of stdout
  --header NAME=VALUE                refuses HTTP requests without this header
  --help                             prints this text

Faults:";

/// Written to stderr before the server starts, so that a client that does not read stderr blocks.
const STDERR_FLOOD_KIB: u64 = 1024;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP} stderr-flood {}", McpFault::NAMES.join(" "));
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("mcp_server: {message}");
            return ExitCode::from(2);
        }
    };
    let handle = options.server.handle();
    let ended = options.run().await;
    for violation in handle.violations() {
        eprintln!("mcp_server: the client broke the protocol: {violation}");
    }
    if let Err(error) = &ended {
        eprintln!("mcp_server: {error}");
    }
    // Exits immediately: a pending read of stdin would delay the runtime's shutdown.
    std::process::exit(i32::from(ended.is_err()));
}

struct Options {
    server: McpServer,
    stderr_flood_kib: u64,
    http: bool,
}

impl Options {
    /// Parses the arguments; `None` if help is requested.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut server = McpServer::new();
        let mut tools = demo_tools();
        let (mut stderr_flood_kib, mut http) = (0, false);
        while let Some(option) = arguments.next() {
            match option.as_str() {
                "--help" | "-h" => return Ok(None),
                "--http" => {
                    http = true;
                    continue;
                }
                _ => {}
            }
            let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
            match (option.as_str(), value.as_str()) {
                ("--era", "both") => server = server.with_era(McpEra::Both),
                ("--era", "modern") => server = server.with_era(McpEra::Modern),
                ("--era", "legacy") => server = server.with_era(McpEra::Legacy),
                ("--era", "silent") => server = server.with_era(McpEra::LegacySilentOnDiscover),
                ("--tools", "demo") => tools = demo_tools(),
                ("--tools", "weather") => tools = vec![weather()],
                ("--tools", "many") => tools.extend((0..200).map(lookup)),
                ("--fault", "stderr-flood") => stderr_flood_kib = STDERR_FLOOD_KIB,
                ("--fault", fault) => {
                    server = server.with_fault(fault.parse().map_err(|error| format!("{error}"))?);
                }
                ("--header", header) => {
                    let (name, value) = header
                        .split_once('=')
                        .ok_or_else(|| format!("--header needs NAME=VALUE, not {header:?}"))?;
                    server = server.with_required_header(name, value);
                }
                _ => return Err(format!("unknown option: {option} {value}; try --help")),
            }
        }
        let server = tools.into_iter().fold(server, McpServer::with_tool);
        let server = server
            .with_instructions("A scripted server. Its weather is made up.")
            .with_resource("demo://about", "about", "text/plain", "A scripted server.")
            .with_prompt("forecast", "Asks for a forecast", &["city"], "How is it in {city}?");
        Ok(Some(Self { server, stderr_flood_kib, http }))
    }

    async fn run(self) -> io::Result<()> {
        let mut stderr = io::stderr().lock();
        writeln!(stderr, "mcp_server: a scripted server, process {}", std::process::id())?;
        for _ in 0..self.stderr_flood_kib {
            stderr.write_all(&[b'#'; 1023])?;
            stderr.write_all(b"\n")?;
        }
        drop(stderr);
        if self.http {
            let server = self.server.start_http().await?;
            println!("{}", server.url());
            tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;
            return Ok(());
        }
        self.server.serve(tokio::io::stdin(), tokio::io::stdout()).await
    }
}

fn demo_tools() -> Vec<McpTool> {
    vec![add(), weather(), count_slowly(), picture(), ask_name(), secret_env(), spawn_child()]
}

fn add() -> McpTool {
    let number = json!({ "type": "number" });
    let schema = json!({
        "type": "object",
        "properties": { "a": number, "b": number },
        "required": ["a", "b"],
    });
    let sum = json!({ "type": "object", "properties": { "sum": number }, "required": ["sum"] });
    McpTool::new("add", "Adds two numbers", schema, async |arguments: Value, _call| {
        let (Some(a), Some(b)) = (arguments["a"].as_f64(), arguments["b"].as_f64()) else {
            return McpAnswer::error("`a` and `b` must be numbers");
        };
        McpAnswer::text((a + b).to_string()).with_structured(json!({ "sum": a + b }))
    })
    .with_title("Add")
    .with_output_schema(sum)
    .with_annotations(json!({ "readOnlyHint": true, "idempotentHint": true }))
}

const WEATHER: &[(&str, &str)] = &[
    ("Bergen", "rain, 9 degrees"),
    ("Lisbon", "sunny, 21 degrees"),
    ("Oslo", "snow, -3 degrees"),
    ("Paris", "cloudy, 14 degrees"),
];

fn weather() -> McpTool {
    let city = json!({ "type": "string", "description": "One of Bergen, Lisbon, Oslo, Paris" });
    let schema = json!({ "type": "object", "properties": { "city": city }, "required": ["city"] });
    let description = "Returns the weather of a city (made up: this server is scripted)";
    McpTool::new("weather", description, schema, async |arguments: Value, _call| {
        let city = arguments["city"].as_str().unwrap_or_default();
        match WEATHER.iter().find(|(known, _)| known.eq_ignore_ascii_case(city)) {
            Some((city, weather)) => McpAnswer::text(format!("{city}: {weather} (made up)")),
            None => {
                let known: Vec<_> = WEATHER.iter().map(|(city, _)| *city).collect();
                let known = known.join(", ");
                McpAnswer::error(format!("no weather for {city:?}; the known cities are {known}"))
            }
        }
    })
    .with_annotations(json!({ "readOnlyHint": true }))
}

fn count_slowly() -> McpTool {
    let schema = json!({
        "type": "object",
        "properties": { "to": { "type": "integer" }, "ms": { "type": "integer" } },
        "required": ["to"],
    });
    let description = "Counts, and reports progress; `ms` is the pause of each step";
    McpTool::new("count_slowly", description, schema, async |arguments: Value, call| {
        let Some(to) = arguments["to"].as_u64().filter(|to| *to <= 10_000) else {
            return McpAnswer::error("`to` must be a number up to 10,000");
        };
        let pause = Duration::from_millis(arguments["ms"].as_u64().unwrap_or(100));
        for step in 1..=to {
            tokio::time::sleep(pause).await;
            let (step, to) = (u32::try_from(step).unwrap_or(0), u32::try_from(to).unwrap_or(0));
            let message = format!("step {step} of {to}");
            call.progress(step.into(), Some(to.into()), Some(&message)).await;
        }
        McpAnswer::text(format!("counted to {to}"))
    })
}

/// An image of four pixels.
const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x02, 0x08, 0x02, 0x00, 0x00, 0x00, 0xfd, 0xd4, 0x9a,
    0x73, 0x00, 0x00, 0x00, 0x16, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0xb8, 0xa3, 0xa1, 0xa1,
    0x51, 0x71, 0x87, 0xe1, 0xc3, 0x09, 0x0d, 0x8d, 0x05, 0x01, 0x00, 0x27, 0xaa, 0x05, 0xa1, 0xf2,
    0xf5, 0x75, 0xfd, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

fn picture() -> McpTool {
    let schema = json!({ "type": "object", "properties": {} });
    McpTool::new(
        "picture",
        "Returns a picture of four pixels",
        schema,
        async |_arguments, _call| McpAnswer::text("Four pixels:").with_image("image/png", PNG),
    )
    .with_annotations(json!({ "readOnlyHint": true }))
}

fn ask_name() -> McpTool {
    let schema = json!({ "type": "object", "properties": {} });
    McpTool::new("ask_name", "Asks the user for a name", schema, async |_arguments, call| {
        let wanted = json!({
            "type": "object",
            "properties": { "name": { "type": "string" } },
            "required": ["name"],
        });
        let answer = call.elicit("name", "What is your name?", wanted).await?;
        Ok(match answer["content"]["name"].as_str() {
            Some(name) if answer["action"] == "accept" => format!("Hello, {name}!"),
            _ => format!("no name: {}", answer["action"].as_str().unwrap_or("no answer")),
        })
    })
}

fn secret_env() -> McpTool {
    let schema = json!({ "type": "object", "properties": {} });
    let description = "Returns the names of the server's environment variables, not their values";
    McpTool::new("secret_env", description, schema, async |_arguments, _call| {
        let mut names: Vec<String> =
            std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        names.sort();
        McpAnswer::text(names.join("\n")).with_structured(json!({ "names": names }))
    })
}

/// Children stay here; the server neither waits for them nor kills them.
static CHILDREN: Mutex<Vec<Child>> = Mutex::new(Vec::new());

fn spawn_child() -> McpTool {
    let schema = json!({
        "type": "object",
        "properties": { "keep_stdout": { "type": "boolean" } },
    });
    let description = "Starts `sleep 1000` and returns its process id; with `keep_stdout`, the \
                       child holds the server's stdout open";
    McpTool::new("spawn_child", description, schema, async |arguments: Value, _call| {
        let stdout = match arguments["keep_stdout"].as_bool() {
            Some(true) => Stdio::inherit(),
            _ => Stdio::null(),
        };
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
        match sleep.spawn() {
            Ok(child) => {
                let pid = child.id();
                if let Ok(mut children) = CHILDREN.lock() {
                    children.push(child);
                }
                McpAnswer::text(pid.to_string()).with_structured(json!({ "pid": pid }))
            }
            Err(error) => McpAnswer::error(format!("`sleep` does not start: {error}")),
        }
    })
}

fn lookup(number: usize) -> McpTool {
    let description = format!("Looks up entry {number} of a made-up catalog");
    let schema = json!({ "type": "object", "properties": {} });
    McpTool::new(
        format!("lookup_{number}"),
        description,
        schema,
        move |_arguments, _call| async move { format!("entry {number} (made up)") },
    )
}
