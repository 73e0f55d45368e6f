"""Lowers an exported program; `python -m aoti_debug._lower_child REQUEST.json` does it in a process of its own.

Everything that the build needs from torch is found out here and left in the request's folder (see lowering.py), so that
the parent gets by without importing torch.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
import traceback
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aoti_debug import lowering, signature
from aoti_debug._triton_configs import triton_configs
from aoti_debug.errors import AotiDebugError
from aoti_debug.inputs import Inputs, check, read, write
from aoti_debug.lowering import Answer, Failure, Request

FORCED = {
    "trace.provenance_tracking_level": 1,
    "aot_inductor.debug_intermediate_value_printer": "0",
    "aot_inductor.precompile_headers": False,
}
NEEDED = ("aot_inductor.package_cpp_only", "aot_inductor.compile_wrapper_opt_level", *FORCED)
FALLBACK_OPT = "O1"


def run(request: Request, program: Any = None) -> Answer | Failure:
    """Lowers `program`, or the file that the request names, and leaves the results in the request's folder."""
    times: dict[str, float] = {}
    try:
        return _run(request, program, times)
    except _StepError as error:
        cause = error.__cause__
        traceback.print_exception(cause)
        hint = error.hint or (cause.hint if isinstance(cause, AotiDebugError) else "")
        return Failure(error.step, error.subject, type(cause).__name__, str(cause), hint)


class _StepError(Exception):
    """Carries what a Failure says; the cause is chained."""

    def __init__(self, step: str, subject: str, hint: str) -> None:
        super().__init__(step)
        self.step = step
        self.subject = subject
        self.hint = hint


def _run(request: Request, program: Any, times: dict[str, float]) -> Answer:
    folder = Path(request.folder)
    with _step("torch", times):
        import torch

        missing = [key for key in NEEDED if not _has_config(key)]
        if missing:
            raise RuntimeError(f"torch {torch.__version__} has no setting {missing[0]}")
    for module in request.imports:
        with _step("import", times, module):
            importlib.import_module(module)
    for library in request.libraries:
        with _step("library", times, library):
            torch.ops.load_library(library)
    for key in request.configs:
        with _step("config", times, key):
            if not _has_config(key):
                raise ValueError(f"torch {torch.__version__} has no such setting")
    if program is None:
        with _step("load", times, request.program, lambda: _load_hint(request.program)):
            program = torch.export.load(request.program)
    with _step("inputs", times, request.inputs):
        without_inputs = _keep_inputs(program, request.inputs, folder)
    if program.example_inputs is None:
        raise _StepError("load", request.program, _EXAMPLES) from ValueError("it was saved without example inputs")
    configs = dict(request.configs)
    if lowering.OPERATOR_KEYS in configs:
        with _step("config", times, lowering.OPERATOR_KEYS, lambda: _REGISTER):
            configs[lowering.OPERATOR_KEYS] = _by_operator(configs[lowering.OPERATOR_KEYS])
    with _step("lower", times):
        wrapper_opt = _lower(program, request, configs)
    with _step("operators", times):
        own = request.configs.get(lowering.OPERATOR_KEYS, {})
        archive = folder / (lowering.HASHED_ARCHIVE if request.hashed_kernels else lowering.ARCHIVE)
        shims, schemas = _operators(archive, own)
    return Answer(torch.__version__, shims, schemas, wrapper_opt, without_inputs, times, triton_configs(), own)


_EXAMPLES = "export it again and leave the example inputs in, or pass --inputs FILE"
_REGISTER = "pass --import MODULE or --load-library PATH"


@contextlib.contextmanager
def _step(step: str, times: dict[str, float], subject: str = "", hint: Callable[[], str] = str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    except Exception as error:
        raise _StepError(step, subject, hint()) from error
    finally:
        times[step] = times.get(step, 0.0) + time.monotonic() - began


def _has_config(key: str) -> bool:
    import torch._inductor.config as config

    owner: Any = config
    for part in key.split("."):
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True


def _load_hint(path: str) -> str:
    """What is likely wrong with a program that cannot be loaded: operators that nobody registered, or its version."""
    import torch

    with zipfile.ZipFile(path) as archive:
        graphs = [
            json.loads(archive.read(name))
            for name in archive.namelist()
            if "/models/" in name and name.endswith(".json")
        ]
    missing = []
    for target in sorted({target for graph in graphs for target in _targets(graph)}):
        namespace, _, rest = target.removeprefix("torch.ops.").partition(".")
        name = rest.partition(".")[0]
        if not hasattr(getattr(torch.ops, namespace), name):
            missing.append(f"{namespace}::{name}")
    if missing:
        return f"nobody has registered {', '.join(missing)}: {_REGISTER}"
    writers = {str(graph.get("torch_version", "")) for graph in graphs} - {"", torch.__version__}
    if writers:
        return f"torch {' and '.join(writers)} wrote it; this is torch {torch.__version__}"
    return ""


def _targets(value: Any) -> Iterator[str]:
    """Every `torch.ops.…` that a serialized graph calls, at any depth."""
    if isinstance(value, dict):
        target = value.get("target")
        if isinstance(target, str) and target.startswith("torch.ops.") and "higher_order" not in target:
            yield target
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _targets(item)


def _keep_inputs(program: Any, path: str, folder: Path) -> str:
    """Writes the signature and the inputs to embed; returns why there are none, or ""."""
    described = signature.describe(program)
    (folder / lowering.SIGNATURE).write_text(signature.to_json(described))
    if path:
        inputs = read(path, described)
        if program.example_inputs is None:
            program.example_inputs = (inputs.args, dict(inputs.kwargs))
    elif program.example_inputs is None:
        return "the program has no example inputs"
    else:
        args, kwargs = program.example_inputs
        inputs = Inputs(tuple(args), kwargs)
    try:
        check(inputs, described, path or "the program's example inputs")
        write(inputs, folder / lowering.INPUTS)
    except AotiDebugError as error:
        if path:
            raise
        return str(error)
    return ""


def _by_operator(named: Mapping[str, Any]) -> dict[Any, Any]:
    """A setting with operators in the place of their names.

    Raises:
        LookupError: one of them is not registered.
    """
    found = {name: _overload(name) for name in named}
    if missing := [name for name, operator in found.items() if operator is None]:
        raise LookupError(f"nobody has registered {', '.join(missing)}")
    return {found[name]: value for name, value in named.items()}


def _lower(program: Any, request: Request, settings: Mapping[str, Any]) -> str:
    import torch

    configs = {**settings, **FORCED}
    if request.hashed_kernels:
        name = lowering.HASHED_ARCHIVE
        configs["aot_inductor.compile_wrapper_opt_level"] = "O0"  # this library is thrown away
    else:
        name = lowering.ARCHIVE
        configs["aot_inductor.package_cpp_only"] = True
    torch._inductor.aoti_compile_and_package(
        program, package_path=str(Path(request.folder) / name), inductor_configs=configs
    )
    level = torch._inductor.config.aot_inductor.compile_wrapper_opt_level
    return str(request.configs.get("aot_inductor.compile_wrapper_opt_level", level))


def _operators(archive: Path, own: Iterable[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The operators that have a C shim; the schemas of these, of `own` and of all that the proxy executor calls."""
    from torchgen.aoti.fallback_ops import inductor_fallback_ops

    shims = tuple(inductor_fallback_ops)
    called = [_dotted(name) for name in own]
    with zipfile.ZipFile(archive) as file:
        for member in file.namelist():
            if member.endswith(".wrapper.json"):
                called += [_dotted(node["node"]["target"]) for node in json.loads(file.read(member))["nodes"]]
    schemas = {name: _schema(name) for name in (*shims, *called)}
    return shims, {name: schema for name, schema in schemas.items() if schema}


def _dotted(target: str) -> str:
    """An operator's full name: "mylib::op" and "mylib::op.out" as "mylib.op.default" and "mylib.op.out"."""
    namespace, _, rest = target.replace("::", ".").partition(".")
    name, _, overload = rest.partition(".")
    return f"{namespace}.{name}.{overload or 'default'}"


def _schema(name: str) -> str:
    found = _overload(name)
    return "" if found is None else str(found._schema)


def _overload(name: str) -> Any:
    """The operator of this name, or None."""
    import torch

    namespace, op, overload = _dotted(name).split(".")
    packet = getattr(getattr(torch.ops, namespace), op, None)
    found = getattr(packet, overload, None)
    return found if isinstance(found, torch._ops.OpOverload) else None


def main() -> None:
    """Answers one request and ends at once: tearing torch down would only cost time."""
    request = lowering.read_request(Path(sys.argv[1]))
    answer = run(request)
    lowering.write_answer(Path(request.folder), answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
