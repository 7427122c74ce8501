#!/usr/bin/env bash
# Exports TURNSTREAM_REDIS_SERVER, the program of a Redis or Valkey server: the one that is set, one in PATH, or
# Debian's, which is installed where that is possible. To be sourced. `redis_skip` is called with the reason where no
# server can be had.
set -euo pipefail

declare -F redis_skip >/dev/null || redis_skip() { echo "skipped: $*"; exit 0; }

redis_find() { command -v redis-server || command -v valkey-server; }

if [ -z "${TURNSTREAM_REDIS_SERVER:-}" ]; then
    if ! redis_find >/dev/null; then
        command -v apt-get >/dev/null || redis_skip "there is no redis-server, and no apt-get to install it"
        # Debian starts a server of its own after the install, unless a policy forbids it.
        { apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends redis-server; } \
            >/dev/null 2>&1 || redis_skip "apt-get could not install redis-server"
    fi
    TURNSTREAM_REDIS_SERVER=$(redis_find)
fi
export TURNSTREAM_REDIS_SERVER
"$TURNSTREAM_REDIS_SERVER" --version
