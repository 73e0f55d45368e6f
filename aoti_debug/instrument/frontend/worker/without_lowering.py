"""Asks torch about the operators of a compiled package, and reads or makes the inputs to embed in one.

`python -m aoti_debug.instrument.frontend.worker.without_lowering REQUEST.json`
"""

from __future__ import annotations

from pathlib import Path

from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer, Failure, Request
from aoti_debug.instrument.frontend.worker.answer_request import answer_or_failure, answer_request, load_operators, step
from aoti_debug.instrument.frontend.worker.called_operators import shims_and_schemas
from aoti_debug.package import manifest
from aoti_debug.package.inputs import random_inputs, signature
from aoti_debug.package.inputs.input_files import read, write

WITHOUT_INPUTS = "a compiled package holds none"
WITHOUT_PROMISES = "a compiled package does not say how its buffers were meant to be laid out"


def run(request: Request) -> Answer | Failure:
    """Answers a request whose program is a compiled package, or one for random inputs (`random_inputs`)."""
    work = _query_operators if request.random_inputs is None else _make_inputs
    return answer_or_failure(lambda times: work(request, times))


def _query_operators(request: Request, times: dict[str, float]) -> Answer:
    folder = Path(request.folder)
    with step("torch", times):
        import torch
    load_operators(request, times)
    if request.inputs:
        with step("inputs", times, request.inputs):
            model_signature = signature.from_json((folder / messages.SIGNATURE).read_text(encoding="utf-8"))
            write(read(request.inputs, model_signature), folder / messages.INPUTS)
    with step("operators", times):
        shims, schemas = shims_and_schemas(Path(request.program), ())
    return Answer(
        torch_version=torch.__version__,
        shim_operators=shims,
        schemas=schemas,
        wrapper_opt="",
        without_inputs="" if request.inputs else WITHOUT_INPUTS,
        times=times,
        without_promises=WITHOUT_PROMISES,
    )


def _make_inputs(request: Request, times: dict[str, float]) -> Answer:
    """Makes random inputs for the signature and the manifest in the folder of the request."""
    folder = Path(request.folder)
    with step("torch", times):
        import torch
    with step("inputs", times):
        model_signature = signature.from_json((folder / messages.SIGNATURE).read_text(encoding="utf-8"))
        package_manifest = manifest.from_json((folder / messages.MANIFEST).read_bytes())
        inputs = random_inputs.make(model_signature, package_manifest, request.random_inputs or 0)
        write(inputs, folder / messages.INPUTS)
    return Answer(torch.__version__, shim_operators=(), schemas={}, wrapper_opt="", without_inputs="", times=times)


def main() -> None:
    """Answers the request named on the command line, and ends the process."""
    answer_request(run)


if __name__ == "__main__":
    main()
