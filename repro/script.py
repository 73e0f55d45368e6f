"""Writes repro.py: a header, what the kind needs, storages, arguments one a line, the launch, and the call of main."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Layout
from aoti_debug.repro import literals
from aoti_debug.repro.arguments import ReproArguments

WIDTH = 110


@dataclass(frozen=True)
class Script:
    """The parts of repro.py and its folder that depend on the kind of kernel.

    Attributes:
        standard: import statements of the standard library, beside those of every repro.
        packages: import statements of installed packages, beside torch.
        imports: import statements of the modules that travel along, beside those of every repro.
        source: statements before the arguments: the kernel's source, how it is compiled. "" if there are none.
        launch: the statements that launch it; arguments are variables of their own names.
        made: names of the tensors that they bind, for the launch to return.
        kernel: the object that `source` makes of the kernel, for Job (templates/kernel.py); "" if there is none.
        needs: what a machine needs to replay it, beside torch, safetensors and numpy; "" if nothing.
        random, libraries: as Job has them.
        modules: as Job has `imports`.
        about: lines for the header.
        ways: other command lines for the README, each with what it does.
        files: what lies in the folder beside repro.py, by name.
    """

    launch: tuple[str, ...]
    source: str = ""
    standard: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    kernel: str = ""
    needs: str = ""
    random: str = ""
    libraries: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


def render(title: str, header: Sequence[str], script: Script, arguments: ReproArguments, fault: str) -> str:
    """The text of repro.py.

    Args:
        title: "0.3 cpp_fused_relu_1"
        header: lines of text that say what it is and where it comes from.
        fault: what the recorded launch ended in, or "".
    """
    parts = [
        "\n".join(["#!/usr/bin/env python3", *(literals.comment(line) for line in header)]),
        _imports(script),
        *([script.source] if script.source else []),
        _storages(arguments),
        _arguments(arguments),
        *([_results(arguments)] if script.made else []),
        _launch(script, arguments),
        _main(title, script, fault),
    ]
    return "\n\n".join(parts) + "\n"


def call(function: str, arguments: Sequence[str], remarks: Sequence[str] = (), indent: int = 4) -> str:
    """Returns a call on one line, or with one argument a line where that is too long or arguments have remarks."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) + indent <= WIDTH and not any(remarks):
        return line
    pad, width = " " * (indent + 4), max((len(a) for a in arguments), default=0) + 1
    comments = [literals.comment(r) if r else "" for r in remarks] or [""] * len(arguments)
    lines = [f"{pad}{f'{a},':{width}}  {c}".rstrip() for a, c in zip(arguments, comments, strict=True)]
    return "\n".join([f"{function}(", *lines, f"{' ' * indent})"])


def tuple_of(texts: Iterable[str], indent: int) -> str:
    """A tuple of strings, on as many lines as it takes."""
    items = [literals.text(text) for text in texts]
    line = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if len(line) + indent <= WIDTH:
        return line
    lines, pad = [""], " " * (indent + 4)
    for item in items:
        longer = f"{lines[-1]} {item},".lstrip()
        lines[-1:] = [longer] if len(longer) + len(pad) <= WIDTH else [lines[-1], f"{item},"]
    return "\n".join(["(", *(pad + line for line in lines), f"{' ' * indent})"])


def mapping_of(items: Mapping[str, str], indent: int) -> str:
    """A dictionary of source texts by name, on as many lines as it takes."""
    pairs = [f"{literals.text(name)}: {value}" for name, value in items.items()]
    line = f"{{{', '.join(pairs)}}}"
    if len(line) + indent <= WIDTH - 20:
        return line
    pad = " " * (indent + 4)
    return "\n".join(["{", *(f"{pad}{pair}," for pair in pairs), f"{' ' * indent}}}"])


def _imports(script: Script) -> str:
    return "\n".join(
        [
            *script.standard,
            "import sys",
            "from pathlib import Path",
            "",
            "import torch",
            *script.packages,
            "",
            "FOLDER = Path(__file__).resolve().parent",
            "sys.path.insert(0, str(FOLDER))",
            "",
            f"from replay import Job, LaunchArgument, {'Result, ' if script.made else ''}Storage, main",
            *script.imports,
        ]
    )


def _storages(arguments: ReproArguments) -> str:
    rows = [
        (literals.text(s.name), f"bytes={s.bytes}", f"address={s.address}", f"device={literals.text(s.device)}")
        for s in arguments.storages
    ]
    about = "# The memory behind the arguments; address: of its first byte, modulo 128. Bytes of no argument are 0."
    return "\n".join([about, *_table("STORAGES", "Storage", rows)])


def _arguments(arguments: ReproArguments) -> str:
    rows = [
        (
            literals.text(a.name),
            literals.text(a.role),
            _dtype(a.layout.dtype),
            f"shape={a.layout.shape!r}",
            f"stride={a.layout.strides!r}",
            f"storage={literals.text(a.storage)}",
            f"offset={a.offset}" + (", recorded=False" if a.slot.before is None else ""),
        )
        for a in arguments.tensors
    ]
    about = "# The arguments as they were just before the launch: tensors/before_<name>.safetensors has their values."
    if any(a.slot.before is None for a in arguments.tensors):
        about += "\n# recorded=False: the memory of this output was not saved; here it begins as zeros."
    return "\n".join([about, *_table("ARGUMENTS", "LaunchArgument", rows)])


def _results(arguments: ReproArguments) -> str:
    rows = [(literals.text(r.name), *_described(r.layout)) for r in arguments.results]
    about = "# The tensors that the launch allocates: tensors/after_<name>.safetensors has the recorded values."
    return "\n".join([about, *_table("RESULTS", "Result", rows)])


def _described(layout: Layout) -> tuple[str, str, str]:
    return _dtype(layout.dtype), f"shape={layout.shape!r}", f"stride={layout.strides!r}"


def _dtype(name: str) -> str:
    return f"torch.{name}"


def _table(name: str, constructor: str, rows: Sequence[Sequence[str]]) -> list[str]:
    """A list with one constructor call a line, its columns aligned."""
    if not rows:
        return [f"{name} = []"]
    widths = [max(len(row[i]) for row in rows) + 2 for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [f"{cell}, ".ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append(f"    {constructor}({''.join(cells)}{row[-1]}),")
    return [f"{name} = [", *lines, "]"]


def _launch(script: Script, arguments: ReproArguments) -> str:
    head = call("def launch", [a.name for a in arguments.tensors], indent=0) + ":"
    body = [f"    {statement}" for statement in script.launch]
    if script.made:
        pairs = ", ".join(f"{literals.text(name)}: {name}" for name in script.made)
        body.append(f"    return {{{pairs}}}")
    return "\n".join(["", head, *body])


def _main(title: str, script: Script, fault: str) -> str:
    options = [
        "launch",
        f"title={literals.text(title)}",
        "folder=FOLDER",
        "arguments=ARGUMENTS",
        "storages=STORAGES",
        *(["results=RESULTS"] if script.made else []),
        *([f"kernel={script.kernel}"] if script.kernel else []),
        *([f"fault={literals.text(fault)}"] if fault else []),
        *([f"random={literals.text(script.random)}"] if script.random else []),
        *([f"libraries={tuple_of(script.libraries, 8)}"] if script.libraries else []),
        *([f"imports={tuple_of(script.modules, 8)}"] if script.modules else []),
    ]
    lines = [f"        {option}," for option in options]
    return "\n".join(["", 'if __name__ == "__main__":', "    job = Job(", *lines, "    )", "    main(job)"])
