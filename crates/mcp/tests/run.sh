#!/usr/bin/env bash
# Runs the MCP client against third-party servers and against the official conformance suite. Installs both below
# target/ (servers.txt, install.sh). If they cannot be installed, the script prints the reason and succeeds. If they
# are installed, no test may be skipped, and each scenario has to pass or to be listed in expected_failures.yml.
# `run.sh tests [NAME]` runs only the tests (with that name), `run.sh conformance [SCENARIO]` only the suite.
set -euo pipefail
cd "$(dirname "$0")/../../.."

what=${1:-all} only=${2:-}
source crates/mcp/tests/install.sh
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

run_tests() {
    local log=$mcp_folder/log wanted ran
    cargo test --workspace --all-features --test mcp -- --ignored --nocapture ${only:+"$only"} \
        2>"$mcp_folder/errors" | tee "$log" || { tail -50 "$mcp_folder/errors"; exit 1; }
    wanted=$({ grep -rh '#\[ignore = "needs MCP servers' $mcp_here --include='*.rs' || true; } | wc -l)
    ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$log")
    tests_line="mcp: ${ran:-0} tests with servers ran, $((wanted - ${ran:-0})) were skipped"
    [ "${ran:-0}" -gt 0 ] && { [ -n "$only" ] || [ "$ran" -eq "$wanted" ]; } || { echo "$tests_line"; exit 1; }
}

passed=0 expected=0 unexpected=0
# conformance SUITE SCENARIO [REVISION]: runs one scenario. With --expected-failures, the suite considers only the
# checks, so a client that crashed or sent nothing would pass. Therefore, this function checks for both.
conformance() {
    local suite=$1 scenario=$2 revision=${3:-} output code
    [ -z "$only" ] || [ "$only" = "$scenario" ] || return 0
    # Without `exec`, the suite's time limit would end a shell instead of the client.
    for _ in 1 2; do
        code=0
        output=$(${suite} client --command "exec $target/debug/examples/mcp_conformance" --scenario "$scenario" \
            ${revision:+--spec-version "$revision"} --timeout 20000 \
            --expected-failures $mcp_here/expected_failures.yml 2>&1) || code=$?
        # The older release warns if a reconnect is 200 ms late, which happens on a busy machine.
        grep -q 'Client reconnected slightly late' <<<"$output" || break
    done
    local checks overall
    checks=$(sed -n 's|^Passed: \([0-9]*/[0-9]*\),.*|\1|p' <<<"$output")
    overall=$(sed -n 's/.*OVERALL: //p' <<<"$output")
    local line="  ${revision:-0.1.16} $scenario: ${checks:-no} checks"
    if [ "$code" -eq 0 ] && [ "$overall" = PASSED ] && [ "${checks:-0/0}" != 0/0 ]; then
        passed=$((passed + 1))
        echo "$line"
    elif [ "$code" -eq 0 ] && grep -q '^  ~ ' <<<"$output"; then
        expected=$((expected + 1))
        echo "$line, failed as expected"
    else
        unexpected=$((unexpected + 1))
        printf '%s\n%s, FAILED\n' "$output" "$line"
    fi
}
# scenarios SUITE [REVISION]: lists the scenarios for clients, except those of OAuth: users of this crate provide
# their own token.
scenarios() {
    $1 list --client ${2:+--spec-version "$2"} | sed -n 's/^  - \([^ ]*\).*/\1/p' | grep -v '^auth/'
}
run_conformance() {
    cargo build --quiet --workspace --all-features --example mcp_conformance
    local revision scenario names known=()
    # The suite runs a scenario once for each revision that it applies to, with that revision's wire.
    for revision in 2025-06-18 2025-11-25 2026-07-28; do
        names=$(scenarios "$TURNSTREAM_MCP_CONFORMANCE_2026" $revision)
        for scenario in $names; do
            known+=("$scenario")
            conformance "$TURNSTREAM_MCP_CONFORMANCE_2026" "$scenario" $revision
        done
    done
    # The previous release has no revisions of the wire, and lists extensions together with other scenarios.
    names=$(scenarios "$TURNSTREAM_MCP_CONFORMANCE_2025")
    for scenario in $names; do
        known+=("$scenario")
        conformance "$TURNSTREAM_MCP_CONFORMANCE_2025" "$scenario"
    done
    # The suite ignores entries of scenarios that it does not run.
    for scenario in $(sed -n 's/^ *- *\([^ :#]*\).*/\1/p' $mcp_here/expected_failures.yml); do
        printf '%s\n' "${known[@]}" | grep -qxF -- "$scenario" || {
            unexpected=$((unexpected + 1))
            echo "  expected_failures.yml: the scenario $scenario is not run"
        }
    done
    conformance_line="mcp conformance: $passed scenarios passed, $expected failed as expected"
    [ "$unexpected" -eq 0 ] || { echo "$conformance_line, $unexpected did not"; exit 1; }
    [ $((passed + expected)) -gt 0 ] || { echo "no scenario ran${only:+ with the name $only}"; exit 1; }
}

tests_line='' conformance_line=''
case $what in
all)
    run_tests
    run_conformance
    ;;
tests) run_tests ;;
conformance) run_conformance ;;
*)
    echo "usage: run.sh [tests [NAME] | conformance [SCENARIO]]"
    exit 2
    ;;
esac
printf '%s\n' ${tests_line:+"$tests_line"} ${conformance_line:+"$conformance_line"}
