//! The example `crash`, which kills its process and the server in the middle of a session.

use std::env;
use std::process::Command;

use turnstream_test_support::cases;
use turnstream_test_support::postgres::{Server, as_user, tool};

#[test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
fn killed_processes_and_servers_lose_and_duplicate_nothing() {
    let (kills, server_kills) = if cases::all_are_run() { (200, 20) } else { (40, 4) };
    let program = env::var_os("TURNSTREAM_CRASH").expect("run.sh sets TURNSTREAM_CRASH");
    let server = Server::start(&[]);
    let data = server.data();
    let mut start = as_user(&tool("pg_ctl"));
    start.args(["start", "-w", "-s", "-t", "60", "-D"]).arg(&data);
    start.arg("-l").arg(server.folder().join("log"));
    let words = [start.get_program()].into_iter().chain(start.get_args());
    let start: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    // A process of the killed server that was just starting ends on its own, and blocks a restart
    // until then.
    let restart = format!(
        "first=$(head -1 '{0}/postmaster.pid'); all=\"$first $(ps -o pid= --ppid $first)\"; \
         kill -9 $all; while kill -0 $all; do sleep 0.01; done; \
         for _ in 1 2 3 4 5 6 7 8 9; do {1} && exit 0; done; exit 1",
        data.display(),
        start.join(" ")
    );
    let output = Command::new(program)
        .args(["--store", &server.url(), "--kills", &kills.to_string(), "--seed", "1"])
        .args([
            "--server-kills",
            &server_kills.to_string(),
            "--restart-server",
            &format!("{{ {restart}; }} >/dev/null 2>&1"),
        ])
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{out}");
    assert_eq!(
        out.lines().last(),
        Some(&*format!("kills {kills}, lost 0, doubled 0")),
        "{out}{err}"
    );
    assert!(out.contains(&format!("server kills {server_kills}\n")), "{out}");
}
