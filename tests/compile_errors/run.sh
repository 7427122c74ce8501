#!/usr/bin/env bash
# Checks the compiler's messages for common mistakes: each program below must not compile, and its
# error must contain the given texts. Needs no network once the crate itself is built.
set -euo pipefail
cd "$(dirname "$0")/../.."

source tests/readme/new_project.sh
new_project
# The types of arguments that are written by hand.
printf 'schemars = "1"\nserde = { version = "1", features = ["derive"] }\n' >>"$project/Cargo.toml"
refused=0

# check NAME [TEXT...]: compiling the program on stdin fails with an error that contains all these texts; without
# texts, it succeeds.
check() {
    local name=$1 said status=0
    shift
    { printf '#![allow(dead_code, unused)]\nuse turnstream::Tool;\nuse turnstream::tool::Json;\n'
        printf '#[derive(serde::Serialize)]\nstruct Weather { degrees: i32 }\n'
        printf '#[derive(serde::Deserialize, schemars::JsonSchema)]\nstruct City { name: String }\n'
        printf 'fn main() {\n'; cat; printf '}\n'; } >"$project/src/main.rs"
    said=$(cargo build --quiet --manifest-path "$project/Cargo.toml" 2>&1) || status=$?
    if [ $# -eq 0 ] && [ $status -ne 0 ] || [ $# -gt 0 ] && [ $status -eq 0 ]; then
        printf '%s: status %s\n%s\n' "$name" "$status" "$said"
        exit 1
    fi
    local word
    for word in "$@"; do
        if ! grep -qF -- "$word" <<<"$said"; then
            printf '%s: the error does not contain: %s\n%s\n' "$name" "$word" "$said"
            exit 1
        fi
    done
    [ $# -eq 0 ] || refused=$((refused + 1))
}

check "a tool that compiles" <<'END'
    Tool::new("t", "Says", |city: City, _cx| async move { Json(Weather { degrees: 4 }) });
    Tool::new("t", "Says", |(), _cx| async { Ok::<_, std::io::Error>("done") });
    Tool::new("t", "Says", |text: String, _cx| async move { text });
    Tool::new("t", "Says", |(), _cx| async { futures::StreamExt::boxed(futures::stream::empty()) });
END

check "a bare struct as output" \
    '`Weather` cannot be the output of a tool' 'turnstream::tool::Json(value)' <<'END'
    Tool::new("t", "Says", |(), _cx| async { Weather { degrees: 4 } });
END

check "a bare struct in a result" '`Weather` cannot be the output of a tool' <<'END'
    Tool::new("t", "Says", |(), _cx| async { Ok::<_, std::io::Error>(Weather { degrees: 4 }) });
END

check "an error type that is not an error" '`Weather` cannot be the error of a tool' '.map_err(' <<'END'
    Tool::new("t", "Says", |(), _cx| async { Err::<String, _>(Weather { degrees: 4 }) });
END

check "arguments that cannot be read" '`Weather` cannot be the arguments of a tool' <<'END'
    Tool::new("t", "Says", |args: Weather, _cx| async { "done" });
END

check "a bare closure as hook" 'is not a hook' 'hook::before_tool' <<'END'
    turnstream::Agent::new(turnstream::provider::Scripted::new(["x"])).with_hook(|_, _| async {});
END

check "a function that is a tool" <<'END'
    /// Says.
    #[turnstream::tool]
    async fn say(city: City) -> Json<Weather> { Json(Weather { degrees: 4 }) }
    say_tool();
END

check "a bare struct as the output of a function" '`Weather` cannot be the output of a tool' ') -> Weather' <<'END'
    /// Says.
    #[turnstream::tool]
    async fn say() -> Weather { Weather { degrees: 4 } }
END

check "a parameter that cannot be read" 'Weather: JsonSchema' 'say(a: Weather)' <<'END'
    /// Says.
    #[turnstream::tool]
    async fn say(a: Weather) -> String { String::new() }
END

check "a parameter that is a reference" 'take an owned value, such as `String`' 'say(a: &str)' <<'END'
    /// Says.
    #[turnstream::tool]
    async fn say(a: &str) -> String { a.to_owned() }
END

echo "compile errors: $refused programs are refused, with the words that were expected"
