#!/usr/bin/env bash
# Provides a PostgreSQL server for the tests: the one in TURNSTREAM_POSTGRES_BIN, on the PATH or in
# /usr/lib/postgresql; otherwise Debian's server is installed. Source this script from the root of the repository. If
# no server can be installed, it calls `postgres_skip` with the reason.
set -euo pipefail

declare -F postgres_skip >/dev/null || postgres_skip() { echo "skipped: $*"; exit 0; }

# NOTE: crates/test-support/src/postgres.rs looks in the same places.
postgres_find() {
    if [ -n "${TURNSTREAM_POSTGRES_BIN:-}" ]; then
        ls "$TURNSTREAM_POSTGRES_BIN/initdb" 2>/dev/null
    else
        command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort | tail -1
    fi
}

if [ -z "$(postgres_find)" ]; then
    [ -z "${TURNSTREAM_POSTGRES_BIN:-}" ] || postgres_skip "there is no initdb in $TURNSTREAM_POSTGRES_BIN"
    command -v apt-get >/dev/null || postgres_skip "there is no PostgreSQL, and no apt-get to install it with"
    # Without the cluster that Debian would create and start.
    { apt-get update -qq && apt-get install -y -qq postgresql-common &&
        sed -i 's/^#*create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf &&
        apt-get install -y -qq postgresql; } >/dev/null 2>&1 ||
        postgres_skip "PostgreSQL cannot be installed"
fi
command -v openssl >/dev/null || apt-get install -y -qq openssl >/dev/null 2>&1 ||
    postgres_skip "there is no openssl to create certificates with"

echo "$("$(dirname "$(postgres_find)")/postgres" --version)"
