#!/usr/bin/env python3
"""Lists the public items of a crate, one per line: `list.py FILE`, where FILE is rustdoc's JSON.

The lines have the format of `cargo public-api -sss`: items that a crate re-exports are listed under each of their
public paths, and blanket implementations, auto traits and derived implementations are left out. The format of the JSON
depends on the version of Rust.
"""

import json
import sys
from typing import NamedTuple

# The order of items with the same parent. All kinds of items that this crate can have are listed.
ORDER = [
    "use", "module", "macro", "proc_macro", "enum", "struct", "struct_field", "variant", "constant", "static", "trait",
    "assoc_type", "assoc_const", "function", "type_alias", "impl",
]


class Part(NamedTuple):
    """A component of the path of an item."""

    item: dict
    name: str | None
    is_renamed: bool = False
    # The parents of an `impl` are used only to sort.
    is_hidden: bool = False


def tagged(value):
    """Splits an enum of the JSON into its tag and its content."""
    return (value, None) if isinstance(value, str) else next(iter(value.items()))


class Crate:
    def __init__(self, crate):
        self.index = crate["index"]
        self.external_paths = crate["paths"]
        # The paths of all public items, and those of each item.
        self.paths, self.paths_of_item = [], {}
        self.collect(crate["root"])

    def item(self, id):
        return self.index.get(str(id))

    def collect(self, root):
        stack = [((), root)]
        while stack:
            parents, id = stack.pop()
            item = self.item(id)
            if item is None:
                continue
            name, is_renamed = item["name"], False
            tag, inner = tagged(item["inner"])
            if tag == "use":
                name, is_renamed = inner["name"], True
                used = self.item(inner["id"])
                if inner["is_glob"]:
                    stack += [(parents, child) for child in tagged(used["inner"])[1]["items"]]
                    continue
                # The items of other crates have no description.
                if used is not None:
                    item = used
                    tag, inner = tagged(item["inner"])
            if tag == "impl" and (
                inner["is_synthetic"] or inner["blanket_impl"] or "automatically_derived" in item["attrs"]
            ):
                continue
            path = (*parents, Part(item, name, is_renamed))
            self.paths.append(path)
            self.paths_of_item.setdefault(item["id"], []).append(path)
            stack += [(path, child) for child in self.children(tag, inner)]
            hidden = tuple(part._replace(is_hidden=True) for part in path)
            if tag in ("struct", "enum"):
                stack += [(hidden, id) for id in inner["impls"]]
            elif tag == "trait":
                stack += [(hidden, id) for id in inner["implementations"]]

    def children(self, tag, inner):
        if tag in ("module", "trait"):
            return inner["items"]
        if tag == "impl":
            # With the trait's default items, so that it makes no difference whether they are overridden.
            names = {self.item(id)["name"] for id in inner["items"]}
            trait = self.item(inner["trait"]["id"]) if inner["trait"] else None
            defaults = tagged(trait["inner"])[1]["items"] if trait else []
            return inner["items"] + [id for id in defaults if self.item(id)["name"] not in names]
        if tag == "enum":
            return inner["variants"]
        if tag in ("struct", "variant"):
            kind, fields = tagged(inner["kind"])
            return fields["fields"] if kind in ("plain", "struct") and fields else []
        return []

    def lines(self):
        return [line for _, line in sorted((self.sort_key(path), self.line(path)) for path in self.paths)]

    def sort_key(self, path):
        key = []
        for part in path:
            tag, inner = tagged(part.item["inner"])
            name = part.name
            if tag == "impl":
                name = self.impl(inner)
                if not inner["trait"]:
                    names = (self.item(id)["name"] for id in inner["items"])
                    name += "-" + "-".join(sorted(names))
            # A trait is implemented after the methods of the type.
            is_trait_impl = tag == "impl" and inner["trait"] is not None
            key.append((ORDER.index(tag), is_trait_impl, name))
        return key

    def line(self, path):
        item = path[-1].item
        marks = sorted(self.mark(attribute) for attribute in item["attrs"])
        return "".join(mark + " " for mark in marks if mark) + self.declaration(item, self.path(path))

    def mark(self, attribute):
        tag, content = tagged(attribute)
        # `repr(C)` orders fields, which does not matter to a caller.
        if tag == "repr" and content["kind"] != "c":
            raise SystemExit(f"list.py: the attribute {attribute} is unknown")
        return "#[non_exhaustive]" if tag == "non_exhaustive" else ""

    def declaration(self, item, path):
        tag, inner = tagged(item["inner"])
        match tag:
            case "use":
                return f"pub use {path}"
            case "module":
                return f"pub mod {path}"
            case "proc_macro":
                return f"pub attribute macro {path}"
            case "macro":
                return f"pub macro {path}!"
            case "struct":
                kind, fields = tagged(inner["kind"])
                fields = self.fields(fields, "pub ") if kind == "tuple" else ""
                return f"pub struct {path}{self.generics(inner['generics'])}{fields}"
            case "enum":
                return f"pub enum {path}{self.generics(inner['generics'])}"
            case "variant":
                kind, fields = tagged(inner["kind"])
                value = f" = {inner['discriminant']['value']}" if kind == "plain" and inner["discriminant"] else ""
                return f"pub {path}{self.fields(fields, '') if kind == 'tuple' else value}"
            case "struct_field":
                return f"pub {path}: {self.type(inner)}"
            case "function":
                header = inner["header"]
                words = "".join(f"{word} " for word in ("unsafe", "const", "async") if header[f"is_{word}"])
                generics = inner["generics"]
                return (f"pub {words}fn {path}{self.params(generics['params'])}{self.signature(inner['sig'])}"
                        f"{self.where(generics['where_predicates'])}")
            case "trait":
                unsafe = "unsafe " if inner["is_unsafe"] else ""
                return f"pub {unsafe}trait {path}{self.generics(inner['generics'])}{self.bounds(inner['bounds'], ': ')}"
            case "impl":
                return self.impl(inner)
            case "type_alias":
                return f"pub type {path}{self.generics(inner['generics'])} = {self.type(inner['type'])}"
            case "assoc_type":
                value = f" = {self.type(inner['type'])}" if inner["type"] else ""
                return f"pub type {path}{self.generics(inner['generics'])}{self.bounds(inner['bounds'], ': ')}{value}"
            case "constant" | "assoc_const":
                return f"pub const {path}: {self.type(inner['type'])}"
            case "static":
                return f"pub static {path}: {self.type(inner['type'])}"
        raise SystemExit(f"list.py: the kind of item `{tag}` is unknown")

    def path(self, path):
        parts = []
        for part in path:
            tag, inner = tagged(part.item["inner"])
            if not part.is_hidden:
                parts.append(self.type(inner["for"]) if tag == "impl" else part.name)
        return "::".join(parts)

    def impl(self, inner):
        generics = inner["generics"]
        unsafe = "unsafe " if inner["is_unsafe"] else ""
        trait = f"{self.resolved(inner['trait'])} for " if inner["trait"] else ""
        return (f"{unsafe}impl{self.params(generics['params'])} {trait}{self.type(inner['for'])}"
                f"{self.where(generics['where_predicates'])}")

    def fields(self, ids, prefix):
        fields = [self.item(id) if id is not None else None for id in ids]
        return "(" + ", ".join(prefix + self.type(it["inner"]["struct_field"]) if it else "_" for it in fields) + ")"

    def signature(self, sig):
        output = f" -> {self.type(sig['output'])}" if sig["output"] else ""
        return "(" + ", ".join(self.argument(*argument) for argument in sig["inputs"]) + ")" + output

    def argument(self, name, type):
        text = self.type(type)
        return text[:-len("Self")] + "self" if name == "self" and self.is_self(type) else text

    def is_self(self, type):
        tag, inner = tagged(type)
        return self.is_self(inner["type"]) if tag == "borrowed_ref" else type == {"generic": "Self"}

    def type(self, type):
        tag, inner = tagged(type)
        match tag:
            case "resolved_path":
                return self.resolved(inner)
            case "generic" | "primitive":
                return inner
            case "infer":
                return "_"
            case "tuple":
                return "(" + ", ".join(map(self.type, inner)) + ")"
            case "slice":
                return f"[{self.type(inner)}]"
            case "array":
                return f"[{self.type(inner['type'])}; {inner['len']}]"
            case "impl_trait":
                return "impl " + self.bounds(inner)
            case "dyn_trait":
                traits = [self.higher_ranked(it["generic_params"]) + self.resolved(it["trait"]) for it in inner["traits"]]
                if inner["lifetime"]:
                    traits.append(inner["lifetime"])
                text = "dyn " + " + ".join(traits)
                return f"({text})" if len(traits) > 1 else text
            case "function_pointer":
                return f"{self.higher_ranked(inner['generic_params'])}fn{self.signature(inner['sig'])}"
            case "borrowed_ref":
                lifetime = inner["lifetime"] + " " if inner["lifetime"] else ""
                return f"&{lifetime}{'mut ' if inner['is_mutable'] else ''}{self.type(inner['type'])}"
            case "raw_pointer":
                return f"*{'mut' if inner['is_mutable'] else 'const'} {self.type(inner['type'])}"
            case "qualified_path":
                trait, self_type = inner["trait"], self.type(inner["self_type"])
                if trait and not (self_type == "Self" and not trait["path"]):
                    self_type = f"<{self_type} as {self.resolved(trait)}>"
                return f"{self_type}::{inner['name']}"
        raise SystemExit(f"list.py: the kind of type `{tag}` is unknown")

    def resolved(self, path):
        """The path of a type or a trait: the shortest public one, preferably without renamed parts."""
        paths = self.paths_of_item.get(path["id"], [])
        external = self.external_paths.get(str(path["id"]))
        if paths:
            text = self.path(min(reversed(paths), key=lambda path: (any(it.is_renamed for it in path), len(path))))
        else:
            text = "::".join(external["path"]) if external else path["path"]
        return text + self.args(path["args"])

    def args(self, args):
        if not args:
            return ""
        tag, inner = tagged(args)
        if tag == "parenthesized":
            output = f" -> {self.type(inner['output'])}" if inner["output"] else ""
            return "(" + ", ".join(map(self.type, inner["inputs"])) + ")" + output
        parts = [self.arg(*tagged(it)) for it in inner["args"]] + [self.constraint(it) for it in inner["constraints"]]
        return "<" + ", ".join(parts) + ">" if parts else ""

    def arg(self, tag, inner):
        match tag:
            case "lifetime":
                return inner
            case "type":
                return self.type(inner)
            case "const":
                return inner["value"] or inner["expr"]
        return "_"

    def constraint(self, constraint):
        tag, inner = tagged(constraint["binding"])
        binding = f" = {self.arg(*tagged(inner))}" if tag == "equality" else ": " + self.bounds(inner)
        return constraint["name"] + self.args(constraint["args"]) + binding

    def generics(self, generics):
        return self.params(generics["params"]) + self.where(generics["where_predicates"])

    def params(self, params):
        parts = []
        for param in params:
            tag, inner = tagged(param["kind"])
            if tag == "lifetime":
                parts.append(param["name"] + (": " + " + ".join(inner["outlives"]) if inner["outlives"] else ""))
            elif tag == "const":
                parts.append(f"const {param['name']}: {self.type(inner['type'])}")
            elif not inner["is_synthetic"]:
                parts.append(param["name"] + self.bounds(inner["bounds"], ": "))
        return "<" + ", ".join(parts) + ">" if parts else ""

    def where(self, predicates):
        return " where " + ", ".join(self.predicate(*tagged(it)) for it in predicates) if predicates else ""

    def predicate(self, tag, inner):
        if tag == "lifetime_predicate":
            return inner["lifetime"] + ": " + " + ".join(inner["outlives"])
        if tag == "eq_predicate":
            return f"{self.type(inner['lhs'])} = {self.arg(*tagged(inner['rhs']))}"
        return self.higher_ranked(inner["generic_params"]) + self.type(inner["type"]) + self.bounds(inner["bounds"], ": ")

    def bounds(self, bounds, prefix=""):
        return prefix + " + ".join(self.bound(*tagged(it)) for it in bounds) if bounds else ""

    def bound(self, tag, inner):
        if tag == "outlives":
            return inner
        if tag == "use":
            return "use<" + ", ".join(tagged(it)[1] for it in inner) + ">"
        maybe = "?" if inner["modifier"] == "maybe" else ""
        return self.higher_ranked(inner["generic_params"]) + maybe + self.resolved(inner["trait"])

    def higher_ranked(self, params):
        return f"for{self.params(params)} " if params else ""


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print("\n".join(Crate(json.load(file)).lines()))
