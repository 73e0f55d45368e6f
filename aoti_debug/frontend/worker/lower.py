"""Lowers an exported program; `python -m aoti_debug.frontend.worker.lower REQUEST.json` does it in
a process of its own.

Everything that the build needs from torch is found out here and left in the request's folder (see lowering.py), so that
the parent gets by without importing torch.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.errors import AotiDebugError
from aoti_debug.frontend.worker import protocol
from aoti_debug.frontend.worker.buffer_layouts import Layouts, observed
from aoti_debug.frontend.worker.main import StepError, answered, main, register, step
from aoti_debug.frontend.worker.operators import operators, overload, stacks
from aoti_debug.frontend.worker.protocol import Answer, Failure, Request
from aoti_debug.frontend.worker.triton_configs import triton_configs
from aoti_debug.inputs import signature
from aoti_debug.inputs.files import Inputs, check, read, write
from aoti_debug.wrapper import promised_layouts

FORCED = {
    "trace.provenance_tracking_level": 1,
    "aot_inductor.debug_intermediate_value_printer": "0",
    "aot_inductor.precompile_headers": False,
}
NEEDED = ("aot_inductor.package_cpp_only", "aot_inductor.compile_wrapper_opt_level", *FORCED)


def run(request: Request, program: Any = None) -> Answer | Failure:
    """Lowers `program`, or the file that the request names, and leaves the results in the request's folder."""
    return answered(lambda times: _run(request, program, times))


def _run(request: Request, program: Any, times: dict[str, float]) -> Answer:
    folder = Path(request.folder)
    with step("torch", times):
        import torch

        missing = [key for key in NEEDED if not _has_config(key)]
        if missing:
            raise RuntimeError(f"torch {torch.__version__} has no setting {missing[0]}")
    register(request, times)
    for key in request.configs:
        with step("config", times, key):
            if not _has_config(key):
                raise ValueError(f"torch {torch.__version__} has no such setting")
    if program is None:
        with step("load", times, request.program, lambda: _load_hint(request.program)):
            program = torch.export.load(request.program)
    with step("inputs", times, request.inputs):
        without_inputs = _keep_inputs(program, request.inputs, folder)
    if program.example_inputs is None:
        raise StepError("load", request.program, _EXAMPLES) from ValueError("it was saved without example inputs")
    configs = dict(request.configs)
    if protocol.OPERATOR_KEYS in configs:
        with step("config", times, protocol.OPERATOR_KEYS, lambda: _REGISTER):
            configs[protocol.OPERATOR_KEYS] = _by_operator(configs[protocol.OPERATOR_KEYS])
    found_stacks = stacks(program)
    with step("lower", times), observed() as layouts:
        wrapper_opt = _lower(program, request, configs)
    promised, strange = promised_layouts.parse(layouts.graphs)
    with step("operators", times):
        own = request.configs.get(protocol.OPERATOR_KEYS, {})
        archive = folder / (protocol.HASHED_ARCHIVE if request.hashed_kernels else protocol.ARCHIVE)
        shims, schemas = operators(archive, own)
    return Answer(
        torch_version=torch.__version__,
        shim_operators=shims,
        schemas=schemas,
        wrapper_opt=wrapper_opt,
        without_inputs=without_inputs,
        times=times,
        triton_configs=triton_configs(),
        custom_shims=own,
        operator_stacks=found_stacks,
        promises=promised,
        without_promises=_without_promises(layouts, strange),
    )


_EXAMPLES = "export it again and leave the example inputs in, or pass --inputs FILE"
_REGISTER = "pass --import MODULE or --load-library PATH"


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
    (folder / protocol.SIGNATURE).write_text(signature.to_json(described))
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
        write(inputs, folder / protocol.INPUTS)
    except AotiDebugError as error:
        if path:
            raise
        return str(error)
    return ""


def _without_promises(layouts: Layouts, strange: Sequence[str]) -> str:
    if layouts.failure or not layouts.graphs:
        return f"this torch does not tell the layouts of buffers: {layouts.failure or 'nothing was scheduled'}"
    if strange:
        return f"this torch tells the layouts of buffers in another form: {strange[0]}"
    return ""


def _by_operator(named: Mapping[str, Any]) -> dict[Any, Any]:
    """A setting with operators in the place of their names.

    Raises:
        LookupError: one of them is not registered.
    """
    found = {name: overload(name) for name in named}
    if missing := [name for name, operator in found.items() if operator is None]:
        raise LookupError(f"nobody has registered {', '.join(missing)}")
    return {found[name]: value for name, value in named.items()}


def _lower(program: Any, request: Request, settings: Mapping[str, Any]) -> str:
    import torch

    configs = {**settings, **FORCED}
    if request.hashed_kernels:
        name = protocol.HASHED_ARCHIVE
        configs["aot_inductor.compile_wrapper_opt_level"] = "O0"  # this library is thrown away
    else:
        name = protocol.ARCHIVE
        configs["aot_inductor.package_cpp_only"] = True
    torch._inductor.aoti_compile_and_package(
        program, package_path=str(Path(request.folder) / name), inductor_configs=configs
    )
    level = torch._inductor.config.aot_inductor.compile_wrapper_opt_level
    return str(request.configs.get("aot_inductor.compile_wrapper_opt_level", level))


if __name__ == "__main__":
    main(run)
