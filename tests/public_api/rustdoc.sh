#!/usr/bin/env bash
# rustdoc, with options that are not stable. If Cargo itself ran with RUSTC_BOOTSTRAP, it would build most dependencies
# again, here and in the next ordinary build, because their build scripts depend on that variable.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
