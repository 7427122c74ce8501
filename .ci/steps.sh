# Steps of `.ci/run` and `.ci/long`, which source this file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

titles=() starts=() cpu_starts=()
# step TITLE: prints the title, and the time since the start.
step() {
    titles+=("$*")
    starts+=($SECONDS)
    cpu_starts+=("$(cpu_seconds)")
    printf '\n== %s (%s)\n' "$*" "$(minutes $SECONDS)"
}
# Prints the CPU time of this script and of the programs that it has waited for.
cpu_seconds() { awk -v ticks="$(getconf CLK_TCK)" '{ print int(($14 + $15 + $16 + $17) / ticks) }' /proc/$$/stat; }
minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# Prints the minutes that each step took, and those of CPU time. If a step failed, names it.
finish() {
    local status=$? i
    starts+=($SECONDS)
    cpu_starts+=("$(cpu_seconds)")
    printf '\n== minutes, and of CPU time\n'
    for i in "${!titles[@]}"; do
        printf '%6s %6s  %s\n' "$(minutes $((starts[i + 1] - starts[i])))" \
            "$(minutes $((cpu_starts[i + 1] - cpu_starts[i])))" "${titles[i]}"
    done
    printf '%6s %6s  all steps\n' "$(minutes $SECONDS)" "$(minutes "$(cpu_seconds)")"
    if [ $status -ne 0 ]; then
        echo "FAILED: ${titles[*]: -1}"
    else
        echo "all is well"
    fi
    exit $status
}
trap finish EXIT
# A script that is killed has failed.
trap 'exit 143' INT TERM

# On a bare machine, installs a C compiler and linker (the TLS library contains C code), and Rust.
if ! command -v cc >/dev/null; then
    step "install a C compiler"
    apt-get update -qq && apt-get install -y -qq gcc libc6-dev
fi
if ! command -v cargo >/dev/null; then
    step "install Rust"
    apt-get update -qq && apt-get install -y -qq rustup && rustup default 1.95.0
    export PATH="$HOME/.cargo/bin:$PATH"
fi
rustup component add rustfmt clippy >/dev/null 2>&1 || true
# Panics report their line without debug information, and the build is faster.
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
# The package in `durable` has its own lockfile. Crates that both packages use are built once.
export CARGO_TARGET_DIR="$PWD/target"
