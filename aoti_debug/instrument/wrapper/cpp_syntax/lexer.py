"""A tokenizer for the C++ that Inductor generates.

It handles what plain regular expressions get wrong: comments that hold Triton source, raw strings that hold Python
source, and commas inside template arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Lexeme(Enum):
    """The kinds of tokens."""

    COMMENT = "comment"
    STRING = "string"  # raw ones too
    CHAR = "char"
    NUMBER = "number"
    NAME = "name"
    PUNCTUATION = "punctuation"


class Token(NamedTuple):
    """A token and its place in the text."""

    lexeme: Lexeme
    text: str
    start: int  # offset in the text

    @property
    def end(self) -> int:
        """The offset behind the token."""
        return self.start + len(self.text)


class TextSpan(NamedTuple):
    """The part [start, end) of a text."""

    start: int
    end: int


_COMMENT = r"//(?:\\\n|[^\n])*|/\*.*?\*/"
_RAW_STRING = r'R"(?P<delimiter{0}>[^()\\\s]{{0,16}})\(.*?\)(?P=delimiter{0})"'
_STRING = r'"(?:\\.|[^"\\\n])*"'
_CHAR = r"'(?:\\.|[^'\\\n])+'"
_PREFIX = "(?:u8|[uUL])?"
_PREFIXED = (f"{prefix}(?:{_RAW_STRING.format(prefix)}|{_STRING}|{_CHAR})" for prefix in ("u8", "u", "U", "L"))
# Each alternative begins with a letter of its own: `re` skips what begins none.
_OPAQUE = re.compile("|".join((_COMMENT, _RAW_STRING.format(""), _STRING, _CHAR, *_PREFIXED)), re.DOTALL)
_TOKEN = re.compile(
    rf"(?P<comment>{_COMMENT})"
    rf"|(?P<string>{_PREFIX}(?:{_RAW_STRING.format('')}|{_STRING}))"
    rf"|(?P<char>{_PREFIX}{_CHAR})"
    r"|(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<punctuation>::|->|\.\.\.|<<|<=|>=|==|!=|&&|\|\||[^\s\w])",
    re.DOTALL,
)
_BRACKET = re.compile(r"[()\[\]{}]")


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Returns the tokens of text[start:end], comments included, in order."""
    lexemes = {lexeme.value: lexeme for lexeme in Lexeme}
    matches = _TOKEN.finditer(text, start, len(text) if end is None else end)
    return [Token(lexemes[m.lastgroup], m.group(), m.start()) for m in matches if m.lastgroup]


def mask(text: str) -> str:
    """Returns the text with comments, strings and characters blanked: offsets and line breaks stay."""
    return _OPAQUE.sub(lambda m: _blank(m.group()), text)


def without_comments(text: str) -> str:
    """Returns the text with comments blanked: offsets and line breaks stay."""
    return _OPAQUE.sub(lambda m: _blank(m.group()) if m.group().startswith("/") else m.group(), text)


def _blank(text: str) -> str:
    return "\n".join(" " * len(line) for line in text.split("\n"))


def closing_offset(masked: str, opening: int) -> int:
    """Returns the offset of the bracket that closes the one at offset `opening`, or len(masked).

    Args:
        masked: text without comments and strings, of `mask`.
    """
    depth = 0
    for match in _BRACKET.finditer(masked, opening):
        depth += 1 if match.group() in "([{" else -1
        if depth == 0:
            return match.start()
    return len(masked)


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Returns the index of the bracket that closes the one at index `opening`, or len(tokens)."""
    depth = 0
    for i in range(opening, len(tokens)):
        text = tokens[i].text
        if tokens[i].lexeme is not Lexeme.PUNCTUATION:
            continue
        if text in "([{":
            depth += 1
        elif text in ")]}":
            depth -= 1
            if depth == 0:
                return i
    return len(tokens)


def split_arguments(tokens: Sequence[Token], opening: int) -> tuple[list[TextSpan], int]:
    """Splits the text between the bracket at index `opening` and its closing bracket at the commas.

    Returns:
        The spans of the arguments and the index of the closing bracket.
    """
    end = closing(tokens, opening)
    inner = [t for t in tokens[opening + 1 : end] if t.lexeme is not Lexeme.COMMENT]
    spans: list[TextSpan] = []
    depth, first = 0, 0
    i = 0
    while i < len(inner):
        text = inner[i].text
        if inner[i].lexeme is Lexeme.PUNCTUATION:
            if text in "([{":
                depth += 1
            elif text in ")]}":
                depth -= 1
            elif text == "," and depth == 0:
                spans.append(TextSpan(inner[first].start, inner[i - 1].end))
                first = i + 1
            elif text == "<":
                i = _after_template(inner, i)
                continue
        i += 1
    if first < len(inner):
        spans.append(TextSpan(inner[first].start, inner[-1].end))
    return spans, end


def _after_template(tokens: Sequence[Token], opening: int) -> int:
    """The index behind the `>` that closes template arguments opened at `opening`; just behind it if it compares."""
    if opening == 0 or tokens[opening - 1].lexeme is not Lexeme.NAME:
        return opening + 1
    depth = 0
    for i in range(opening, len(tokens)):
        token = tokens[i]
        if token.text == "<":
            depth += 1
        elif token.text == ">":
            depth -= 1
            if depth == 0:
                follows = tokens[i + 1].text if i + 1 < len(tokens) else ""
                return i + 1 if follows in ("(", "{", "::") else opening + 1
        elif token.lexeme not in (Lexeme.NAME, Lexeme.NUMBER) and token.text not in ("::", ",", "*", "&"):
            return opening + 1
    return opening + 1
