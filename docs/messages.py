"""Every message of distillkit's own errors, read from the code, and the tests that name it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
# What words a message: the errors' classes, functions that make one, and a context.
ERRORS = {"InputError", "MissingValue", "HeldError", "NotMetError", "Refused", "SpentUp"}
MAKERS = ERRORS | {"_fail", "library_errors", "HTTPException"}
_CHUNK, _TOTAL = 8, 14  # letters that a test and a message share at least, in one piece and in all


@dataclass(frozen=True)
class Message:
    """One message: `subject` is its module's first line; in `shown` a <name> stands for a value."""

    subject: str
    module: str
    shown: str

    @cached_property
    def parts(self) -> list[str]:
        """Its own words, between the values."""
        return [part for part in re.split(r"<\w+>", self.shown) if len(part.strip(" :,;")) > 2]


def messages() -> list[Message]:
    """Read the messages from the code, module by module, in the order of the lines."""
    found: dict[Message, None] = {}
    for path in sorted((ROOT / "distillkit").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        subject = (ast.get_docstring(tree) or path.stem).partition("\n")[0].rstrip(".")
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for node in sorted(calls, key=lambda call: call.lineno):
            if _name(node.func) in MAKERS:
                shown = " ".join("".join(_words(node)).split())
                if re.search(r"[a-z]{3}", re.sub(r"<\w+>", "", shown)):
                    found[Message(subject, path.relative_to(ROOT).as_posix(), shown)] = None
    return list(found)


def tests_of(known: list[Message]) -> dict[Message, list[str]]:
    """Find the tests of each message: they name its words, and no other message fits as well."""
    found: dict[Message, list[str]] = {message: [] for message in known}
    best: dict[str, Message | None] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
        tables = {_name(node.targets[0]): node.value for node in assigned}
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            name = f"{path.relative_to(ROOT).as_posix()}::{node.name}"
            named = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} & set(tables)
            for said in _strings(node).union(*(_strings(tables[one]) for one in named)):
                if said not in best:
                    best[said] = _best(said, known)
                message = best[said]
                if message and name not in found[message]:
                    found[message].append(name)
    return found


def page() -> str:
    """Write the page."""
    known = messages()
    tests = tests_of(known)
    tested = sum(map(bool, tests.values()))
    lines = [
        "# Messages",
        "",
        "What distillkit says of a mistake, and what to do about it. The page is made from the code; "
        f"an italic word stands for a value. Tests name {tested} of the {len(known)} messages, by "
        "words that fit no other message as well.",
    ]
    above = ""
    for message in known:
        if message.subject != above:
            above = message.subject
            lines += ["", f"## {above}", "", f"`{message.module}`", "", "| message | test |"]
            lines += ["|---|---|"]
        shown = re.sub(r"([\\`*_\[\]{}|])", r"\\\1", message.shown)
        shown = re.sub(r"<((?:\w|\\)+)>", r"*\1*", shown)
        test = f"`{tests[message][0]}`" if tests[message] else ""
        lines.append(f"| {shown} | {test} |")
    return "\n".join(lines) + "\n"


def _best(said: str, known: list[Message]) -> Message | None:
    """Return the message that shares most words with a test's string; None: none, or several."""
    pieces = re.split(r"\.[*+]\??|\\d\+", said)
    scores = {}
    for message in known:
        shared = [_shared(piece, part) for piece in pieces for part in message.parts]
        if max(shared, default=0) >= _CHUNK and sum(shared) >= _TOTAL:
            scores[message] = sum(shared)
    best = [message for message, score in scores.items() if score == max(scores.values())]
    return best[0] if len(best) == 1 else None


def _shared(piece: str, part: str) -> int:
    """Return how many letters a string shares with a part of a message, which it may run into."""
    if part in piece:
        return len(part)
    if piece in part:
        return len(piece) if len(piece) >= _CHUNK else 0
    start, stop = piece.rfind(part[:_CHUNK]), piece.find(part[-_CHUNK:])
    if start >= 0 and part.startswith(piece[start:]):
        return len(piece) - start
    return stop + _CHUNK if stop >= 0 and part.endswith(piece[: stop + _CHUNK]) else 0


def _strings(test: ast.AST) -> set[str]:
    texts = (node.value for node in ast.walk(test) if isinstance(node, ast.Constant))
    found = {
        re.sub(r"\\([^\w])", r"\1", text).strip("$^") for text in texts if isinstance(text, str)
    }
    return {text for text in found if len(text) >= _TOTAL and " " in text}


def _words(call: ast.Call) -> Iterator[str]:
    """Yield a message's words and, as <name>, the values that it fills in."""
    maker, given = _name(call.func), [*call.args, *(keyword.value for keyword in call.keywords)]
    if maker in ("_fail", "HTTPException", "Refused"):
        given = given[1:] or given
    for number, value in enumerate(given):
        if number == 1 and maker in ("library_errors", "MissingValue"):
            yield ": "
        yield from _shown(value)


def _shown(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant():
            yield str(node.value)
        case ast.JoinedStr():
            for value in node.values:
                yield from _shown(value)
        case ast.FormattedValue(value=ast.BinOp()):
            yield f"<{_name(node.value)}>"
        case ast.FormattedValue():
            yield from _shown(node.value)
        case ast.BinOp(op=ast.Add()):
            yield from (*_shown(node.left), *_shown(node.right))
        case ast.IfExp():
            sides = ["".join(_shown(side)) for side in (node.body, node.orelse)]
            yield " / ".join(side for side in sides if side)
        case _:
            yield f"<{_name(node)}>"


def _name(node: ast.AST) -> str:
    """Return the name that says most about an expression."""
    match node:
        case ast.Name():
            return node.id.strip("_")
        case ast.Attribute(attr="__name__" | "__class__") | ast.Subscript() | ast.Starred():
            return _name(node.value)
        case ast.Attribute():
            return node.attr
        case ast.Call() if node.args and not isinstance(node.args[-1], ast.Constant):
            return _name(node.args[-1])
        case ast.Call(func=ast.Attribute()) if node.func.attr != "get":
            return _name(node.func.value if node.args else node.func)
        case ast.Call():
            return _name(node.func)
        case ast.BinOp():
            return _name(node.left)
        case ast.GeneratorExp() | ast.ListComp():
            return _name(node.generators[0].iter)
    return "value"
