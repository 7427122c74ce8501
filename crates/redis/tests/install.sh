#!/usr/bin/env bash
# Exports TURNSTREAM_REDIS_SERVER, the program of a Redis or Valkey server: the given one, one on the PATH, or
# Debian's server, which is installed if possible. Source this script. If no server can be installed, it calls
# `redis_skip` with the reason.
set -euo pipefail

declare -F redis_skip >/dev/null || redis_skip() { echo "skipped: $*"; exit 0; }

redis_find() { command -v redis-server || command -v valkey-server; }

if [ -z "${TURNSTREAM_REDIS_SERVER:-}" ]; then
    if ! redis_find >/dev/null; then
        command -v apt-get >/dev/null || redis_skip "there is no redis-server, and no apt-get to install it with"
        # Debian starts its own server after the installation, unless a policy forbids it.
        { apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends redis-server; } \
            >/dev/null 2>&1 || redis_skip "apt-get could not install redis-server"
    fi
    TURNSTREAM_REDIS_SERVER=$(redis_find)
fi
export TURNSTREAM_REDIS_SERVER
"$TURNSTREAM_REDIS_SERVER" --version
