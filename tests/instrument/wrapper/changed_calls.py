"""Changes of calls in the functions of a model, and of the prototypes of what they call."""

from __future__ import annotations

import random
import re

from aoti_debug.package.manifest import Form, Role, Site
from tests.instrument.wrapper.changed_wrappers import (
    ALL,
    NOTHING,
    SHIMS,
    Check,
    Edits,
    Variant,
    Wrapper,
    as_before,
    edited,
    registered_in,
    site_at,
    weaker,
)

EDITS: Edits = {}


STATEMENTS = (
    "auto run = [&]() {{ {} }}; run();",
    "auto run = [=](cudaStream_t stream) mutable -> void {{ {} }}; run(stream);",
    "manager.run_graph(stream, [this, &kernels](auto stream) {{ {} }});",
    "for (int i = 0; i < 3; i++) {{ {} }}",
    "for (int i = 0; i < 3; i++) {}",
    "do {{ {} }} while (again);",
    "while (again) {{ {} }}",
    "AOTICudaStreamGuard side_guard(side, this->device_idx_); {}",
    "_aoti_current_stream_guard = std::make_unique<AOTICudaStreamGuard>(stream1, this->device_idx_); {}",
    "stream = side; {}",
)
_STATEMENT = re.compile(
    r"^ *(?P<statement>(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(?:call_|cpp_fused_|kernels\.|aoti_torch_(?:cpu|cuda)_|"
    r"aoti_torch_proxy_executor)\w*\(.*\);)$",
    re.MULTILINE,
)


_GUARD = "_aoti_current_stream_guard"


def _may_enter_stream_1(text: str, offset: int) -> bool:
    """True where a guard of this stream is what Inductor could have written: none is in force."""
    begin = text.rfind("::run_impl(", 0, offset)
    before = text[max(begin, 0) : offset]
    is_free = before.rfind(f"{_GUARD}.reset()") >= before.rfind(f"{_GUARD} = ")
    return is_free and f"{_GUARD};" in before and "stream1 = _aoti_aux_stream_cache" in before


@registered_in(EDITS, ALL)
def launch_from_elsewhere(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    """From a lambda, from a loop, or on another stream."""
    sites = {site.line for site in wrapper.analysis.sites}
    found = [m for m in _STATEMENT.finditer(wrapper.text) if wrapper.line(m.start("statement")) in sites]
    if not found:
        return None
    statement = rng.choice(found)
    line, around = wrapper.line(statement.start("statement")), rng.choice(STATEMENTS)
    if around.startswith(_GUARD) and _may_enter_stream_1(wrapper.text, statement.start()):
        return None
    text = edited(wrapper.text, [(*statement.span("statement"), around.format(statement["statement"]))])
    function = next(site.function for site in wrapper.analysis.sites if site.line == line)
    later = [s.line for s in wrapper.analysis.sites if s.function == function and s.line > line]
    concerned = [line, *later] if "tream" in around.partition("{}")[0] and "[" not in around else [line]
    return Variant(text, dict.fromkeys(concerned, NOTHING))


CALLS = (
    "unknown_kernel({buffer}, stream);",
    "unknown_kernel<float, 4>({buffer}.data_ptr(), 4L);",
    "manager->run_graph({buffer}, kernels);",
    "cublasLtMatmul(handle, {buffer}.data_ptr(), stream);",
    "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_unknown_operator({buffer}, 3L));",
    "call_unknown_kernel_7({buffer}, this->device_idx_, stream, kernels, this->cubin_dir_);",
    "cpp_fused_unknown_7((float*)({buffer}.data_ptr()));",
    "launchKernel(kernels.k, 1, 1, 1, 4, 0, arguments, stream);",
)


@registered_in(EDITS, ALL)
def call_something_unknown(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    """Beside a launch: it is named among what is not recognised."""
    site = rng.choice(wrapper.analysis.sites)
    buffers = [a.base for a in site.args if a.base and a.base.startswith(("buf", "arg"))]
    if not buffers:
        return None
    call = rng.choice(CALLS).format(buffer=rng.choice(buffers))
    line = wrapper.text.split("\n")[site.line - 1]
    if not line.endswith(";"):
        return None
    end = len("\n".join(wrapper.text.split("\n")[: site.line]))
    return Variant(edited(wrapper.text, [(end, end, f" {call}")]), {site.line: (as_before(site), named)})


def named(site: Site) -> bool:
    """Stands for: something in this line is not recognised."""
    return False


EXPRESSIONS = ("pick({0})", "({0} ? {0} : other)", "*({0})", "{0}.clone()", "{0} + 1", "tensors[{1}]")


@registered_in(EDITS, ALL)
def pass_another_expression(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    """A tensor that comes from an expression of unknown form."""
    sites = [s for s in wrapper.analysis.sites if any(a.form in (Form.TENSOR, Form.POINTER) for a in s.args)]
    site = rng.choice(sites)
    arg = rng.choice([a for a in site.args if a.form in (Form.TENSOR, Form.POINTER)])
    rows = wrapper.text.split("\n")
    old, row = arg.text, rows[site.line - 1]
    if row.count(old) != 1 and not re.search(rf"[(, ]{re.escape(old)}[,)]", row):
        return None
    if arg.form is Form.POINTER:
        new = rng.choice((f"{old} + 16", old.replace(".data_ptr()", ".other_ptr()"), old.replace("(", "(char*)(", 1)))
    else:
        new = rng.choice(EXPRESSIONS).format(old, arg.value)
    position = re.search(rf"(?<=[(, ]){re.escape(old)}(?=[,)])", row)
    if position is None:
        return None
    rows[site.line - 1] = row[: position.start()] + new + row[position.end() :]
    return Variant("\n".join(rows), {site.line: NOTHING})


@registered_in(EDITS, ALL)
def change_a_prototype(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    """A C-shim function whose result has another name, or that takes a parameter more."""
    used = {s.callee for s in wrapper.analysis.sites}
    found = [m for m in re.finditer(r"AOTITorchError (\w+)\(([^()]*)\);", SHIMS) if m[1] in used]
    if not found:
        return None
    prototype = rng.choice(found)
    lines = {s.line: s for s in wrapper.analysis.sites if s.callee == prototype[1]}
    if rng.random() < 0.5:
        shims = SHIMS[: prototype.start(2)] + "int64_t added, " + SHIMS[prototype.start(2) :]
        return Variant(wrapper.text, dict.fromkeys(lines, NOTHING), shims=shims)
    renamed = re.sub(r"\b(out|self)\b", r"other_\1", prototype[2])
    shims = SHIMS[: prototype.start(2)] + renamed + SHIMS[prototype.end(2) :]
    return Variant(wrapper.text, {line: (true_roles(site),) for line, site in lines.items()}, shims=shims)


def true_roles(before: Site) -> Check:
    def check(site: Site) -> bool:
        read = [(a.text, a.role) for a in site.args]
        return all(
            text == true.text and weaker(role, true.role) for (text, role), true in zip(read, before.args, strict=True)
        )

    return check


@registered_in(EDITS, ALL)
def change_a_kernels_prototype(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    """A C++ kernel that only reads, or takes by value, what its call passes as something else."""
    found = list(re.finditer(r"(?:const )?float\* (in_out_ptr|out_ptr|in_ptr)\d+", wrapper.text))
    if not found:
        return None
    parameter = rng.choice(found)
    declared = wrapper.text.rfind('extern "C"', 0, parameter.start())
    head = re.match(r'extern "C"\s+\w+\s+(\w+)\(', wrapper.text[declared:])
    if head is None:
        return None
    new = rng.choice([f"float* {parameter[0].split()[-1]}_renamed", "Other options", "float number"])
    text = edited(wrapper.text, [(*parameter.span(), new)])
    name = parameter[0].split()[-1]

    def check(site: Site) -> bool:
        before = site_at(wrapper, site.line)
        return all(
            a.text == b.text and (a.role is Role.UNKNOWN if b.param == name else weaker(a.role, b.role))
            for a, b in zip(site.args, before.args, strict=True)
        )

    readable = (check,) if "renamed" in new else NOTHING
    return Variant(text, {s.line: readable for s in wrapper.analysis.sites if s.callee == head[1]})
