# Reads Markdown pages and checks their links, as described in `run.sh`. Faults are printed as
# `fault<TAB>FILE:LINE: text`; the files that links point to as `file<TAB>FILE:LINE<TAB>PATH`, whose existence
# `run.sh` checks. GUIDE is the folder of a crate's guide, which ends with `/`, and SHARED its `links.md`. POSIX awk, in
# the locale C.

BEGIN { FS = "\n" }

FNR == 1 {
    end_page()
    page = FILENAME
    is_guide = index(page, GUIDE) == 1 && page != SHARED
    fence = ""
    block = ""
}

{ sub(/\r$/, "") }

page == SHARED { read_shared_definition(); next }

fence != "" {
    if (closes_fence($0)) fence = ""
    else if (is_rust && (is_guide || page == "README.md") && $0 ~ /^[ \t]*#([ \t]|$)/)
        fault(FNR, "a Rust block has a line that rustdoc hides: " $0)
    next
}

match($0, /^[ \t>]*(```+|~~~+)/) {
    end_block()
    fence = substr($0, RSTART, RLENGTH)
    gsub(/[ \t>]/, "", fence)
    fence_line = FNR
    language = substr($0, RSTART + RLENGTH)
    gsub(/^[ \t]+|[ \t]+$/, "", language)
    is_rust = language ~ /^rust([, {]|$)/
    if (language !~ /^[A-Za-z]/) fault(FNR, "a code block has no language")
    next
}

/^ ? ? ?\[[^]]*\]:[ \t]*[^ \t]/ { end_block(); read_definition(); next }

/^[ \t>]*$/ { end_block(); next }

{
    if (block == "") block_line = FNR
    # Rows of tables and headings end at the end of their line.
    if ($0 ~ /^[ \t]*(\||#)/) { end_block(); block_line = FNR; block = $0; end_block() }
    else block = (block == "") ? $0 : block "\n" $0
}

END {
    end_page()
    for (i = 1; i <= shared_count; i++) {
        key = shared_key[i]
        if (!(key in wanted)) fault_at(SHARED, shared_line[key], "no page uses [" shared_label[key] "]")
    }
    print "count\t" links "\t" pages
}

function fault(line, text) { fault_at(page, line, text) }
function fault_at(file, line, text) { print "fault\t" file ":" line ": " text }

function closes_fence(line) {
    gsub(/[ \t>]/, "", line)
    return line ~ /^(`+|~+)$/ && substr(line, 1, 1) == substr(fence, 1, 1) && length(line) >= length(fence)
}

# Labels match if they are equal apart from case and white space.
function normal(label) {
    gsub(/[ \t\n]+/, " ", label)
    gsub(/^ | $/, "", label)
    return tolower(label)
}

function read_shared_definition(    label, target, key) {
    if ($0 ~ /^[ \t]*$/) return
    if ($0 !~ /^\[[^]]+\]: [^ ]+$/) { fault(FNR, "not a definition: " $0); return }
    label = $0; sub(/^\[/, "", label); sub(/\]: .*$/, "", label)
    key = normal(label)
    if (key in shared_label) {
        fault(FNR, "[" label "] is defined in line " shared_line[key] " already; case does not tell labels apart")
        return
    }
    shared_label[key] = label
    shared_line[key] = FNR
    shared_key[++shared_count] = key
}

function read_definition(    label, target, key) {
    label = $0; sub(/^ *\[/, "", label); sub(/\]:.*$/, "", label)
    target = $0; sub(/^ *\[[^]]*\]:[ \t]*/, "", target)
    sub(/[ \t].*$/, "", target)
    key = normal(label)
    if (key in defined_line) fault(FNR, "[" label "] is defined in line " defined_line[key] " already")
    else { defined_line[key] = FNR; defined_label[key] = label; defined_key[++defined_count] = key }
    if (is_guide && label !~ /^(example|test|file)-/) {
        wanted[key]
        needed_file[++needed_count] = page
        needed_line[needed_count] = FNR
        needed_label[needed_count] = label
        if (!(key in shared_label)) fault(FNR, "[" label "] is not in " SHARED)
        else if (shared_label[key] != label)
            fault(FNR, "[" label "] is [" shared_label[key] "] in " SHARED)
    }
    check_target(FNR, target)
}

function end_page(    i, key) {
    if (page == "" || page == SHARED) { page = ""; return }
    end_block()
    if (fence != "") fault(fence_line, "a code block does not end")
    pages++
    for (i = 1; i <= used_count; i++)
        if (!(used_key[i] in defined_line)) fault(used_line[i], "[" used_label[i] "] is not defined")
    for (i = 1; i <= defined_count; i++) {
        key = defined_key[i]
        if (!(key in used)) fault(defined_line[key], "[" defined_label[key] "] is not used")
    }
    used_count = defined_count = 0
    split("", used); split("", defined_line); split("", defined_label)
    page = ""
}

# Scans a paragraph, a list item, a heading or a row of a table for links.
function end_block(    text, at, close_at, label, rest, line, target, end) {
    if (block == "") return
    text = mask(block)
    block = ""
    scan_html(text)
    line = block_line
    for (at = 1; at <= length(text); at++) {
        if (substr(text, at, 1) == "\n") line++
        if (substr(text, at, 1) != "[") continue
        close_at = matching(text, at, "[", "]")
        if (!close_at) continue
        label = substr(text, at + 1, close_at - at - 1)
        rest = substr(text, close_at + 1)
        if (rest ~ /^\(/) {
            end = matching(rest, 1, "(", ")")
            if (!end) continue
            target = substr(rest, 2, end - 2)
            sub(/^[ \t\n]*<?/, "", target); sub(/[> \t\n].*$/, "", target)
            target = unmask(target)
            if (is_guide && !is_web(target) && target !~ /^#/)
                fault(line, "(" target ") is written in place: `cargo doc` needs a label of links.md")
            check_target(line, target)
        } else if (rest ~ /^\[[^]]/) {
            label = rest; sub(/^\[/, "", label); sub(/\].*$/, "", label)
            use(line, unmask(label))
        } else if (rest ~ /^\[\]/ || label !~ /[][]/) {
            # `- [ ]` is a checkbox, and `[!NOTE]` starts an alert.
            if (label ~ /^[ xX]?$/ || label ~ /^!/) continue
            # The second half of `[text][label]`.
            if (at > 1 && substr(text, at - 1, 1) == "]" && rest !~ /^\[\]/) continue
            use(line, unmask(label))
        }
    }
}

function use(line, label,    key) {
    links++
    key = normal(label)
    used[key]
    used_count++
    used_key[used_count] = key; used_line[used_count] = line; used_label[used_count] = label
}

# Checks the addresses in `src="…"` and `href="…"`.
function scan_html(text,    target) {
    while (match(text, /(src|href)="[^"]*"/)) {
        target = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        sub(/^[a-z]*="/, "", target); sub(/"$/, "", target)
        check_target(block_line, unmask(target))
    }
}

function is_web(target) { return target ~ /^(https?:\/\/|mailto:)/ }

function check_target(line, target,    path, anchor, hash, folder) {
    links++
    if (is_web(target)) return
    if (target ~ /^[A-Za-z_][A-Za-z0-9_]*(::|@|!)/) { fault(line, target " is a path of rustdoc"); return }
    if (target ~ /^\// || target == "") { fault(line, "(" target ") is not a relative path"); return }
    hash = index(target, "#")
    path = hash ? substr(target, 1, hash - 1) : target
    anchor = hash ? substr(target, hash + 1) : ""
    folder = page; if (!sub(/\/[^\/]*$/, "", folder)) folder = "."
    if (path == "") path = page
    else path = (folder == ".") ? path : folder "/" path
    print "file\t" page ":" line "\t" path
    if (anchor != "" && path ~ /\.md$/ && !has_heading(path, anchor))
        fault(line, path " has no heading #" anchor)
}

function has_heading(path, anchor) {
    if (!(path in is_read)) is_read[path] = read_headings(path)
    # A page that does not exist is reported only once.
    return !is_read[path] || (path, anchor) in headings
}

function read_headings(path,    line, in_fence, slug, count, status, lines) {
    while ((status = (getline line < path)) > 0) {
        lines++
        sub(/\r$/, "", line)
        if (line ~ /^[ \t>]*(```|~~~)/) { in_fence = !in_fence; continue }
        if (in_fence) continue
        while (match(line, /(id|name)="[^"]*"/)) {
            slug = substr(line, RSTART, RLENGTH)
            line = substr(line, RSTART + RLENGTH)
            sub(/^[a-z]*="/, "", slug); sub(/"$/, "", slug)
            headings[path, slug]
        }
        if (line !~ /^ ? ? ?#+[ \t]/) continue
        slug = github_slug(line)
        count = seen_slug[path, slug]++
        headings[path, count ? slug "-" count : slug]
    }
    close(path)
    return status == 0 && lines > 0
}

# Computes the anchor like GitHub: the text of the heading in lower case, without punctuation, with hyphens for spaces.
function github_slug(line) {
    sub(/^ *#+[ \t]+/, "", line)
    sub(/[ \t]+#*[ \t]*$/, "", line)
    gsub(/\]\([^)]*\)/, "", line)
    gsub(/\]\[[^]]*\]/, "", line)
    gsub(/<[^>]*>/, "", line)
    # Dashes, quotation marks and the ellipsis.
    gsub(/\342\200[\220-\246]/, "", line)
    gsub(/[^A-Za-z0-9 _\200-\377-]/, "", line)
    gsub(/ /, "-", line)
    return tolower(line)
}

function matching(text, at, open, close_char,    depth, i, char) {
    for (i = at; i <= length(text); i++) {
        char = substr(text, i, 1)
        if (char == open) depth++
        else if (char == close_char && --depth == 0) return i
    }
    return 0
}

# Replaces brackets, parentheses and quotation marks in code spans and after backslashes, where they do not form links.
function mask(text,    out, i, char, ticks, end, span) {
    for (i = 1; i <= length(text); i++) {
        char = substr(text, i, 1)
        if (char == "\\") {
            out = out char hide(substr(text, i + 1, 1)); i++
        } else if (char == "`") {
            match(substr(text, i), /^`+/)
            ticks = substr(text, i, RLENGTH)
            end = closing_ticks(text, i + length(ticks), ticks)
            if (!end) { out = out ticks; i += length(ticks) - 1; continue }
            span = substr(text, i, end - i)
            out = out hide(span)
            i = end - 1
        } else out = out char
    }
    return out
}

# Returns the position after the next run of backticks of this length.
function closing_ticks(text, at, ticks,    rest, from) {
    from = at
    while (match(rest = substr(text, from), /`+/)) {
        if (RLENGTH == length(ticks)) return from + RSTART - 1 + RLENGTH
        from += RSTART - 1 + RLENGTH
    }
    return 0
}

function hide(text) {
    gsub(/\[/, "\001", text); gsub(/\]/, "\002", text)
    gsub(/\(/, "\003", text); gsub(/\)/, "\004", text); gsub(/"/, "\005", text)
    return text
}

function unmask(text) {
    gsub(/\001/, "[", text); gsub(/\002/, "]", text)
    gsub(/\003/, "(", text); gsub(/\004/, ")", text); gsub(/\005/, "\"", text)
    return text
}
