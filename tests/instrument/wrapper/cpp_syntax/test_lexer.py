from __future__ import annotations

import pytest

from aoti_debug.instrument.wrapper.cpp_syntax.lexer import (
    Lexeme,
    closing_offset,
    mask,
    split_arguments,
    tokenize,
    without_comments,
)


def lexemes(text: str) -> list[tuple[str, str]]:
    return [(token.lexeme.value, token.text) for token in tokenize(text)]


def arguments(text: str) -> list[str]:
    spans, _ = split_arguments(tokenize(text), 0)
    return [text[span.start : span.end] for span in spans]


def test_tokens_of_every_kind() -> None:
    assert lexemes("f(1'000L, .5e-3, 'a', \"b\\\"c\"); // d") == [
        ("name", "f"),
        ("punctuation", "("),
        ("number", "1'000L"),
        ("punctuation", ","),
        ("number", ".5e-3"),
        ("punctuation", ","),
        ("char", "'a'"),
        ("punctuation", ","),
        ("string", '"b\\"c"'),
        ("punctuation", ")"),
        ("punctuation", ";"),
        ("comment", "// d"),
    ]


OPAQUE = pytest.mark.parametrize(
    "text",
    [
        'R"(torch.mm(x, h) "quoted" \\ )"',
        'R"aoti(a )" b)aoti"',
        'u8R"(x)"',
        'UR"a(x)" )a"',
        "L'\\''",
        'u"a\\"b"',
        '/* f(x) // " */',
        "// f(x) \\\n still a comment",
        '"a // b /* c"',
    ],
)


@OPAQUE
def test_opaque_text_is_one_token(text: str) -> None:
    assert [token.text for token in tokenize(text + "\nend")] == [text, "end"]


@OPAQUE
def test_opaque_text_is_blanked(text: str) -> None:
    blank = "".join(" " if letter != "\n" else letter for letter in text)
    assert mask(f"f({text}\n)") == f"f({blank}\n)"
    assert without_comments(f"f({text}\n)") == f"f({blank if text.startswith('/') else text}\n)"


def test_offsets_point_into_the_text() -> None:
    text = "a /* b */ c"
    assert [text[token.start : token.end] for token in tokenize(text)] == ["a", "/* b */", "c"]
    assert [token.start for token in tokenize(text, 10)] == [10]


def test_the_bracket_that_closes_another() -> None:
    text = mask('f(a[1], ")") { g(h({1})); } /* } */ }')
    assert closing_offset(text, 1) == text.index(" {") - 1
    assert text[closing_offset(text, text.index("{")) :].split() == ["}", "}"]
    assert closing_offset("(a", 0) == 2


def test_mask_keeps_offsets_and_lines() -> None:
    text = "f(\"g(x)\") /* h(\ny) */ k('(') // z"
    masked = mask(text)
    assert len(masked) == len(text)
    assert masked.count("\n") == 1
    assert masked.split() == ["f(", ")", "k(", ")"]


def test_strings_stay_where_comments_are_blanked() -> None:
    assert without_comments('f("// x"); // y\n/* z\n*/ g') == 'f("// x");     \n    \n   g'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("()", []),
        ("(a)", ["a"]),
        ("(a, b(c, d), {e, f}, [g, h])", ["a", "b(c, d)", "{e, f}", "[g, h]"]),
        ("(std::array<int64_t, 2>{1L, 1L}.cbegin(), 2)", ["std::array<int64_t, 2>{1L, 1L}.cbegin()", "2"]),
        ("(std::array<const T*, 2>{nullptr, &x}.data(), 2)", ["std::array<const T*, 2>{nullptr, &x}.data()", "2"]),
        ("(static_cast<std::pair<int, long>>(x), y)", ["static_cast<std::pair<int, long>>(x)", "y"]),
        ("(sizeof(std::vector<int>))", ["sizeof(std::vector<int>)"]),
        ("(std::vector<int>, c)", ["std::vector<int>", "c"]),
        ("(c, std::vector<int>)", ["c", "std::vector<int>"]),
        ("((a < b), c > (d))", ["(a < b)", "c > (d)"]),
        ("(s77 < 3L ? 0L : 1L, n >= 2L)", ["s77 < 3L ? 0L : 1L", "n >= 2L"]),
        ("(a, \"b, c\", ',', d /* e, f */)", ["a", '"b, c"', "','", "d"]),
        ("(buf0,0,buf1)", ["buf0", "0", "buf1"]),
    ],
)
def test_arguments_split_at_their_own_commas(text: str, expected: list[str]) -> None:
    assert arguments(text) == expected


def test_an_unclosed_list_ends_with_the_text() -> None:
    tokens = tokenize("(a, b")
    assert split_arguments(tokens, 0)[1] == len(tokens)
    assert tokens[0].lexeme is Lexeme.PUNCTUATION
