#!/usr/bin/env bash
# Checks that `run.sh` detects each kind of fault: creates a small repository without faults, and adds one fault at a
# time.
set -euo pipefail
run=$(cd "$(dirname "$0")" && pwd)/run.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Creates the repository without faults.
make_repository() {
    rm -rf "${folder:?}"/*
    mkdir -p "$folder/src/guide" "$folder/examples/small" "$folder/crates/store"
    : >"$folder/src/tool.rs"
    : >"$folder/examples/small/picture.png"
    cat >"$folder/README.md" <<'END'
# A small crate

See [the guide](src/guide/tools.md#many-tools), [the web](https://example.com/#x), [a section](#a-section--code)
and [one on
two lines](crates/store/README.md). `[not a link](missing.md)` is code, \[neither\] is a link.

![A picture](examples/small/picture.png)
<img src="examples/small/picture.png" width="9">

- [ ] a box

## A section & `code`

```rust
#[derive(Debug)]
struct Small;
```
END
    cat >"$folder/crates/store/README.md" <<'END'
# Store

[back](../../README.md)
END
    cat >"$folder/examples/small/README.md" <<'END'
# Small

~~~text
# not a heading
[not a link](missing.md)
~~~
END
    cat >"$folder/src/guide/tools.md" <<'END'
# Tools

[`Tool::new`] makes a tool; see [this page][guide-tools], [its end](#many-tools) and [the example][example-small].

| type | |
|---|---|
| [`Tool`] | a function |

# Many tools

[`Tool::new`]: ../tool.rs
[`Tool`]: ../tool.rs
[guide-tools]: tools.md#many-tools
[example-small]: ../../examples/small/README.md
END
    cat >"$folder/src/guide/links.md" <<'END'
[`Tool::new`]: crate::Tool::new
[`Tool`]: crate::Tool
[guide-tools]: crate::guide::tools
END
}

checks=0
# notices TEXT FILE SED-SCRIPT: checks that this change of the file causes exactly one fault, with this text.
notices() {
    local text=$1 file=$2 change=$3 output
    make_repository
    cp "$folder/$file" "$folder/before"
    sed "$change" "$folder/before" >"$folder/$file"
    if cmp -s "$folder/before" "$folder/$file"; then
        echo "self test: \`$change\` does not change $file"
        exit 1
    fi
    if output=$("$run" "$folder"); then
        echo "self test: not noticed: \`$change\` of $file"
        exit 1
    fi
    if ! grep -qF -- "$text" <<<"$output"; then
        printf 'self test: `%s` of %s has other faults:\n%s\n' "$change" "$file" "$output"
        exit 1
    fi
    if ! grep -q '^links: 1 faults among' <<<"$output"; then
        printf 'self test: `%s` of %s has not exactly one fault:\n%s\n' "$change" "$file" "$output"
        exit 1
    fi
    checks=$((checks + 1))
}

make_repository
if ! output=$("$run" "$folder") || [[ $output != 'links: '*' are alive' ]]; then
    printf 'self test: the repository without faults has some:\n%s\n' "$output"
    exit 1
fi

guide=src/guide/tools.md shared=src/guide/links.md
notices 'README.md:3: src/guide/gone.md does not exist' README.md 's/tools\.md/gone.md/'
notices 'README.md:4: crates/store/GONE.md does not exist' README.md 's/store\/README/store\/GONE/'
notices 'README.md:7: examples/small/gone.png does not exist' README.md 's/(examples\/small\/picture/(examples\/small\/gone/'
notices 'README.md:7: examples/small/gone.png does not exist' README.md 's/"examples\/small\/picture/"examples\/small\/gone/'
notices 'does not exist' crates/store/README.md 's/\.\.\///;s/README/GONE/'
notices '(/README.md) is not a relative path' crates/store/README.md 's/\.\.\/\.\.\//\//'
notices "has no heading #many" README.md 's/#many-tools/#many/'
notices 'has no heading #a-section-code' README.md 's/#a-section--code/#a-section-code/'
notices 'has no heading #not-a-heading' crates/store/README.md 's/README\.md/examples\/small\/README.md#not-a-heading/'
notices "$guide:3: [\`Tool::old\`] is not defined" $guide 's/^\[`Tool::new`\] makes/[`Tool::old`] and [`Tool::new`] make/'
notices '[the end] is not defined' $guide 's/(#many-tools)/[the end]/'
notices 'README.md:3: [neither' README.md 's/the web\](/the web][neither](/'
notices '[`Tool`] is not used' $guide 's/| \[`Tool`\]/| Tool/'
notices '[example-small] is not used' $guide 's/\[the example\]\[example-small\]/the example/'
notices '[`Tool`] is defined in line 12 already' $guide '12p'
notices 'crate::Tool is a path of rustdoc' README.md 's/https:[^)]*/crate::Tool/'
notices 'fn@main is a path of rustdoc' README.md 's/https:[^)]*/fn@main/'
notices 'crate::Tool is a path of rustdoc' $guide '/^\[`Tool`\]/s/\.\.\/tool\.rs/crate::Tool/'
notices '[`Tool`] is not in src/guide/links.md' $shared '/`Tool`/d'
notices 'no page uses [`Toolkit`]' $shared '$a[`Toolkit`]: crate::Toolkit'
notices 'case does not tell labels apart' $shared '$a[`tool`]: mod@crate::tool'
notices '[`TOOL`] in src/guide/links.md' $shared 's/`Tool`/`TOOL`/'
notices 'not a definition: A sentence.' $shared '$aA sentence.'
notices 'is written in place' $guide 's/\[this page\]\[guide-tools\], /&[here](tools.md), /'
notices 'a code block has no language' README.md 's/^```rust/```/'
notices 'a code block has no language' examples/small/README.md 's/^~~~text/~~~/'
notices 'a code block does not end' examples/small/README.md '$d'
notices 'README.md:16: a Rust block has a line that rustdoc hides: # struct' README.md 's/^struct/# struct/'
notices 'a Rust block has a line that rustdoc hides:     #' README.md 's/^struct/    #\n&/'
notices 'a Rust block has a line that rustdoc hides' $guide '$a\\n```rust,no_run\n# fn main() {}\n```'
echo "links: $checks faults are noticed"
