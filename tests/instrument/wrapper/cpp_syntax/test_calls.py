from __future__ import annotations

from aoti_debug.instrument.wrapper.cpp_syntax.calls import PROXY, CallExpression, Lines, Notes, Scan, scan
from aoti_debug.instrument.wrapper.cpp_syntax.functions import entry_points
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask


def scanned(*lines: str) -> Scan:
    text = "void AOTInductorModel::run_impl(int x) {\n" + "\n".join(lines) + "\n}\n"
    (body,) = entry_points(mask(text))
    calls_and_loops = scan(text, body, Lines(text), lambda name: name.startswith(("aoti_", "cpp_", "kernels.")))
    assert all(text[c.head.start : c.head.end] == c.callee and text[c.opening] == "(" for c in calls_and_loops.calls)
    return calls_and_loops


def calls(*lines: str) -> tuple[CallExpression, ...]:
    return scanned(*lines).calls


def test_a_call_inside_a_check() -> None:
    (call,) = calls("AOTI_TORCH_ERROR_CODE_CHECK(aoti_f(buf0, g(a, b), 1L));")
    assert (call.callee, call.line, call.function) == ("aoti_f", 2, "run_impl")
    assert [argument.text for argument in call.arguments] == ["buf0", "g(a, b)", "1L"]


def test_a_member_call() -> None:
    (call,) = calls("kernels.cuda_fused_mm_0((int)64, stream);")
    assert call.callee == "kernels.cuda_fused_mm_0"


def test_words_in_comments_and_strings_are_no_calls() -> None:
    assert calls("// aoti_f(x)", '/* cpp_k(x) */ const char* s = R"(aoti_f(x))"; f("cpp_k(x)");') == ()


def test_loops_and_subgraphs_follow_the_blocks() -> None:
    calls_and_loops = scanned(
        "aoti_a(x);",
        "if (c) {",
        "// subgraph: true_graph_0",
        "aoti_b(x);",
        "while (1) {",
        "// subgraph: while_loop_cond_graph_0",
        "{ aoti_c(x); }",
        "// subgraph: while_loop_body_graph_0",
        "aoti_d(x); while (1) { aoti_e(x); }",
        "}",
        "aoti_f(x);",
        "} else {",
        "aoti_g(x);",
        "}",
    )
    assert [(call.callee, call.loops, call.subgraph) for call in calls_and_loops.calls] == [
        ("aoti_a", 0, ""),
        ("aoti_b", 0, "true_graph_0"),
        ("aoti_c", 1, "true_graph_0_while_loop_cond_graph_0"),
        ("aoti_d", 1, "true_graph_0_while_loop_body_graph_0"),
        ("aoti_e", 2, "true_graph_0_while_loop_body_graph_0"),
        ("aoti_f", 0, "true_graph_0"),
        ("aoti_g", 0, ""),
    ]
    assert len(calls_and_loops.loops) == 2


def test_notes_belong_to_the_call_that_they_name() -> None:
    first, second, third, fourth = calls(
        "// Topologically Sorted Source Nodes: [linear, ], Original ATen: [aten.t, aten.addmm]",
        "// [Provenance debug handles] aoti_addmm_out:1",
        "aoti_item(x);",
        "aoti_addmm_out(x);",
        "// [Provenance debug handles] aoti_torch_cpu_complex:2",
        f"{PROXY}(x);",
        "aoti_item(x);",
    )
    assert first.notes == Notes()
    assert second.notes == Notes("aoti_addmm_out:1", ("linear",), ("aten.t", "aten.addmm"))
    assert third.notes == Notes("aoti_torch_cpu_complex:2")
    assert fourth.notes == Notes()


def test_nodes_of_another_kernel_do_not_stick_to_a_handle() -> None:
    (call,) = calls(
        "// Unsorted Source Nodes: [gone], Original ATen: [aten.gone]",
        "x();",
        "// [Provenance debug handles] cpp_fused_0:3",
        "cpp_fused_0(x);",
    )
    assert call.notes == Notes("cpp_fused_0:3")
