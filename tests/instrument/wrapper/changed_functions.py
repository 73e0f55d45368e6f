"""Changes of the functions of Triton kernels and of their calls."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from dataclasses import replace

from aoti_debug.package.manifest import Arg, Form, Role, Site
from tests.instrument.wrapper.changed_wrappers import (
    CUDA,
    FIRST_RUN,
    NOTHING,
    Check,
    Edits,
    Function,
    Variant,
    Wrapper,
    edited,
    lines_of,
    name_of,
    pick_function,
    registered_in,
    same_args,
    site_at,
    weaker,
)

EDITS: Edits = {}


@registered_in(EDITS, CUDA)
def rename_a_parameter(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    """`const in_ptr0_type_& out_ptr7`, and in all of the C++; the kernel still only reads it."""
    function = pick_function(wrapper, rng)
    if function is None:
        return None
    old = name_of(function.parameters[rng.randrange(function.own)])
    new = rng.choice(["out_ptr7", "in_ptr7", "in_out_ptr7", "something", "ws_ptr7"])
    text = function.text(wrapper)
    comment = re.search(r"/\*.*?\*/", text, re.DOTALL)
    head, kept, tail = (text[: comment.start()], comment[0], text[comment.end() :]) if comment else (text, "", "")
    word = rf"\b{old}(?=\b|_type_\b)"
    text = re.sub(word, new, head) + kept + re.sub(word, new, tail)
    lines = {}
    for line in lines_of(wrapper, function):
        before = site_at(wrapper, line)
        args = [
            replace(a, param=new, name=new if a.name == old else a.name) if a.param == old else a for a in before.args
        ]
        lines[line] = (lambda site, args=args: same_args(site, args),)
    kernel, params = kernel_of(wrapper, function)
    renamed = tuple(re.sub(rf"^{old}\b", new, name) for name in params)
    return Variant(edited(wrapper.text, [(function.start, function.end, text)]), lines, {kernel: renamed})


def kernel_of(wrapper: Wrapper, function: Function) -> tuple[str, tuple[str, ...]]:
    """The kernel that a function launches, and the names of its arguments."""
    (name,) = site_at(wrapper, lines_of(wrapper, function)[0]).launches
    kernel = next(k for k in wrapper.analysis.kernels if k.name == name)
    return name, tuple(p.name for p in kernel.params)


def with_parameter(wrapper: Wrapper, function: Function, position: int, parameter: str, argument: str) -> str:
    """A wrapper whose function takes one parameter more."""
    first = wrapper.text.index("(\n", function.start) + 2
    parameters = list(function.parameters)
    parameters[position] = f"{parameter}, {parameters[position]}"
    signature = ",\n".join(f"    {p}" for p in parameters)
    edits = [(first, first + len(wrapper.text[first:].partition("\n){")[0]), signature)]
    for call in function.calls:
        arguments = function.arguments(call)
        arguments.insert(position, argument)
        edits.append((*call.span("arguments"), ", ".join(arguments)))
    return edited(wrapper.text, edits)


@registered_in(EDITS, CUDA)
def add_a_number(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    function = pick_function(wrapper, rng)
    if function is None:
        return None
    position = rng.randrange(function.own + 1)
    text = with_parameter(wrapper, function, position, "int64_t added", "123L")
    lines: dict[int, tuple[Check, ...]] = {}
    for line in lines_of(wrapper, function):
        others = [replace(a, value=a.value + (a.value >= position)) for a in site_at(wrapper, line).args]

        def check(site: Site, others: list[Arg] = others) -> bool:
            (added,) = [a for a in site.args if a.param == "added"]
            is_number = (added.form, added.value, added.text) == (Form.SCALAR, position, "123L")
            return is_number and same_args(replace(site, args=tuple(a for a in site.args if a is not added)), others)

        lines[line] = (check,)
    return Variant(text, lines)


@registered_in(EDITS, CUDA)
def add_a_parameter_of_an_unknown_type(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    function = pick_function(wrapper, rng)
    if function is None:
        return None
    parameter = rng.choice(
        [
            "desc_type_ desc",
            "const Options& options",
            "const in_ptr9_type_* in_ptr9",
            "void (*after)(int)",
            "int64_t",
            "cudaStream_t side_",
            "std::array<int64_t, 3> sizes",
            "in_ptr9_type_& in_ptr9",
            "bool& done",
        ]
    )
    text = with_parameter(wrapper, function, rng.randrange(function.own + 1), parameter, "something")
    kernel, _ = kernel_of(wrapper, function)
    known = None if parameter in ("void (*after)(int)", "int64_t") else kernel_of(wrapper, function)[1]
    return Variant(text, dict.fromkeys(lines_of(wrapper, function), NOTHING), {kernel: known})


@registered_in(EDITS, CUDA)
def swap_arguments_of_a_call(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    """Two tensors, or two numbers, in the other order: each is then for the other parameter."""
    function = pick_function(wrapper, rng)
    if function is None:
        return None
    call = rng.choice(function.calls)
    line = wrapper.line(call.start())
    before = site_at(wrapper, line)
    forms: defaultdict[Form, list[Arg]] = defaultdict(list)
    for arg in before.args:
        forms[arg.form].append(arg)
    pairs = [args for args in forms.values() if len({a.text for a in args}) > 1]
    if not pairs:
        return None
    one, other = rng.sample(rng.choice(pairs), 2)
    if one.text == other.text:
        return None
    arguments = function.arguments(call)
    arguments[one.value], arguments[other.value] = arguments[other.value], arguments[one.value]
    bases = {one.param: other, other.param: one}

    def check(site: Site) -> bool:
        return all(
            a.text == b.text
            and a.base == b.base
            and (weaker(a.role, true.role) or {a.role, true.role} <= {Role.OUT, Role.INOUT})
            for true in before.args
            for a in [next(x for x in site.args if x.param == true.param)]
            for b in [bases.get(true.param, true)]
        )

    return Variant(edited(wrapper.text, [(*call.span("arguments"), ", ".join(arguments))]), {line: (check,)})


@registered_in(EDITS, CUDA)
def drop_an_argument_of_a_call(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    function = pick_function(wrapper, rng)
    if function is None:
        return None
    call = rng.choice(function.calls)
    arguments = function.arguments(call)
    del arguments[rng.randrange(len(arguments) - 1)]
    text = edited(wrapper.text, [(*call.span("arguments"), ", ".join(arguments))])
    return Variant(text, {wrapper.line(call.start()): NOTHING})


@registered_in(EDITS, CUDA)
def swap_what_a_kernel_is_passed(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    """The addresses in `kernel_args_` in another order: the names of parameters then say nothing of their roles."""
    function = pick_function(wrapper, rng)
    if function is None:
        return None
    array = re.compile(r"kernel_args_\[\] = \{(.*)\};").search(wrapper.text, function.start, function.end)
    assert array is not None
    parts = array[1].split(", ")
    i, j = rng.sample(range(len(parts)), 2)
    parts[i], parts[j] = parts[j], parts[i]
    kernel, names = kernel_of(wrapper, function)
    order = list(names)
    order[i], order[j] = order[j], order[i]

    def no_roles(site: Site) -> bool:
        return all(a.role in (Role.NONE, Role.UNKNOWN) for a in site.args)

    scratch = {"global_scratch", "profile_scratch"}
    changes = not {names[i], names[j]} <= scratch
    lines = dict.fromkeys(lines_of(wrapper, function), (no_roles,)) if changes else {}
    return Variant(edited(wrapper.text, [(*array.span(1), ", ".join(parts))]), lines, {kernel: tuple(order)})


LAUNCHES = (
    (r"launchKernel\((.*)\);", r"launchKernel(\1, overlaps);"),
    (r"launchKernel\((.*)\);", r"launchKernel(\1); launchKernel(\1);"),
    (r"launchKernel\((.*)\);", r"if (device_idx_ > 0) launchKernel(\1);"),
    (r"launchKernel\((.*)\);", r"for (int i = 0; i < 2; i++) { launchKernel(\1); }"),
    (r"launchKernel\((.*)\);", r"auto go = [&]() { launchKernel(\1); }; go();"),
    (r"launchKernel\((.*)\);", r"if (device_idx_ > 0) { launchKernel(\1); } else { launchKernel(\1); }"),
    (r"launchKernel\((.*), stream_(, \w+)?\);", r"launchKernel(\1, side_stream()\2);"),
    (r"launchKernel\((.*), stream_(, \w+)?\);", r"stream_ = other; launchKernel(\1, stream_\2);"),
    (r"launchKernel\((.*), stream_(, \w+)?\);", r"launchKernel(\1, nullptr\2);"),
    (r"launchKernel\((.*)\);", r"launchCooperativeKernel(\1);"),
    (r"launchKernel\(kernels_\.(\w+), ", r"launchKernel(kernels_.table[3], "),
    (r"launchKernel\(kernels_\.(\w+), ", r"launchKernel(device_idx_ ? kernels_.\1 : kernels_.other, "),
    (r"(launchKernel\(.*), ([\w.]+), ([\w.]+), kernel_args_", r"\1, warps_of(\2), \3, kernel_args_"),
    (r"(launchKernel\(.*), ([\w.]+), ([\w.]+), kernel_args_", r"\1, \2, result.shared_mem, kernel_args_"),
    (r"launchKernel\((.*)kernel_args_, ", r"launchKernel(\1other_args, "),
    (r"void\* kernel_args_\[\] = \{&([\w.]+), (.*)\};", r"void* kernel_args_[] = {&\1, \2}; kernel_args_[0] = &other;"),
    (r"void\* kernel_args_\[\] = \{&([\w.]+), (.*)\};", r"void* kernel_args_[] = {&unknown, \2};"),
    (r"void\* kernel_args_\[\] = \{&([\w.]+), (.*)\};", r"void* kernel_args_[] = {address_of(\1), \2};"),
)


@registered_in(EDITS, CUDA)
def launch_in_another_way(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    function = pick_function(wrapper, rng)
    if function is None:
        return None
    pattern, new = rng.choice(LAUNCHES)
    text, count = re.subn(pattern, new, function.text(wrapper))
    assert count == 1, pattern
    kernel, _ = kernel_of(wrapper, function)
    lines = dict.fromkeys(lines_of(wrapper, function), NOTHING)
    return Variant(edited(wrapper.text, [(function.start, function.end, text)]), lines, {kernel: None})


RESULTS = (
    (r"^(#define {macro}_NUM_WARPS) (\d+)$", r"\1 warps_of(\2)"),
    (r"^(#define {macro}_SHARED_MEM \d+)$", r"\1 + 16"),
    (r"^(// Kernel: {kernel})$", r"#define {macro}_NUM_WARPS 2"),
    (r"({macro}_NUM_WARPS),(\n *)({macro}_SHARED_MEM),", r"\3,\2\1,"),
    (r"({macro}_RSPLIT_SIZE),", r"\1, 7,"),
    (r"(launchKernel\(kernels_\.{kernel}, )", r"{kernel}_result.num_warps = 2; \1"),
    (r"(launchKernel\(kernels_\.{kernel}, )", r"{kernel}_result.shared_mem++; \1"),
    (r"(launchKernel\(kernels_\.{kernel}, )", r"++{kernel}_result.shared_mem; \1"),
    (r"(launchKernel\(kernels_\.{kernel}, )", r"{kernel}_result = other; \1"),
    (r"(launchKernel\(kernels_\.{kernel}, )", r"tune({kernel}_result); \1"),
    (r"(launchKernel\(kernels_\.{kernel}, )", r"tune(&{kernel}_result.num_warps); \1"),
    (r"(launchKernel\(kernels_\.{kernel}, )", r"{kernel}_result.num_warps += 2; \1"),
    (r"{kernel}_result\.num_warps, ", r"{kernel}_result.num_warps * 2, "),
    (r"{kernel}_result\.num_warps, ", r"other_result.num_warps, "),
)


@registered_in(EDITS, FIRST_RUN)
def other_results_of_a_compilation(wrapper: Wrapper, rng: random.Random) -> Variant | None:
    """How many warps a kernel has, or how much shared memory, is then not known."""
    function = pick_function(wrapper, rng)
    if function is None:
        return None
    kernel, _ = kernel_of(wrapper, function)
    names = {"kernel": kernel, "macro": kernel.upper()}
    pattern, new = (part.format(**names) for part in rng.choice(RESULTS))
    text, count = re.subn(pattern, new, wrapper.text, flags=re.MULTILINE)
    assert count == 1, pattern
    return Variant(text, dict.fromkeys(lines_of(wrapper, function), NOTHING), {kernel: None})
