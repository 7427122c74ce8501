#!/usr/bin/env python3
"""Searches Rust code for words that readers stumbled over: identifiers (bindings, parameters of closures, fields), and
the texts of errors and of prompts. Also finds prose in comments that is longer than a line of code. `code.tsv` has the identifiers, `texts.tsv` has patterns for texts, each with better
words. The third column of `code.tsv` lists the paths in which a word is the standard term."""
import re
import subprocess
import sys
from pathlib import Path

here = Path(__file__).parent
# Comments, string literals and character literals.
literal = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(?P<raw>#*)".*?"(?P=raw)|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'', re.S
)


def rows(name):
    lines = (here / name).read_text().splitlines()
    return [(line.split("\t") + [""])[:3] for line in lines]


def blank(match):
    """Replaces a literal, and keeps its lines and the names that a format string captures."""
    text = match[0]
    names = [] if text.startswith("/") else re.findall(r"(?<!\{)\{([a-z_]+)(?=[:}])", text)
    return " ".join(names) + "\n" * text.count("\n")


identifiers = rows("code.tsv")
patterns = [(re.compile(pattern), better) for pattern, better, _ in rows("texts.tsv")]
listed = {word: (better, paths.split()) for word, better, paths in identifiers}
# Not part of a path such as `std::cell`.
word = re.compile(r"(?<!::)\b(" + "|".join(listed) + r")\b(?!::)")
files = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard", "--", *sys.argv[1:]], capture_output=True, text=True, check=True
).stdout.split()
count, hits = 0, []
for path in sorted(file for file in files if file.endswith(".rs") and Path(file).exists()):
    code = Path(path).read_text()
    count += code.count("\n")
    for at, line in enumerate(literal.sub(blank, code).split("\n"), 1):
        for found in word.findall(line):
            better, allowed = listed[found]
            if not any(path.startswith(prefix) for prefix in allowed):
                hits.append(f"{path}:{at}: `{found}`: better {better}")
    is_code = False
    for at, line in enumerate(code.split("\n"), 1):
        comment = re.match(r"\s*//[/!]? ?(.*)", line)
        fence = bool(comment) and comment[1].lstrip().startswith("```")
        is_code = bool(comment) and is_code != fence
        is_prose = comment and not is_code and " " in comment[1] and not comment[1].lstrip().startswith(("|", "["))
        if len(line) > 100 and is_prose and not fence and not comment[1].startswith("    "):
            hits.append(f"{path}:{at}: a comment of more than 100 characters")
    for text in literal.finditer(code):
        if text[0].startswith("/"):
            continue
        joined = re.sub(r"\\\n\s*", "", text[0])
        for pattern, better in patterns:
            if pattern.search(joined):
                at = code.count("\n", 0, text.start()) + 1
                hits.append(f"{path}:{at}: `{pattern.search(joined)[0]}`: better {better}")
print("".join(f"{hit}\n" for hit in hits), end="")
print(f"words: {count} lines of code, {len(hits)} identifiers, texts or comments to change")
sys.exit(bool(hits))
