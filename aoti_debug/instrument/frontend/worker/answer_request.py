"""The main function of a worker process, which answers one request (protocol/messages.py) in timed steps."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.exhaustion import advice, exhausted, refusal, system_text, unwritten
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer, Failure, Request

_COLLECTED_AFTER = (100_000, 50, 50)  # new objects; collections of young ones; of older ones


class StepError(Exception):
    """A failed step, to be reported as a Failure; the cause is chained."""

    def __init__(self, step: str, subject: str, hint: str) -> None:
        super().__init__(step)
        self.step = step
        self.subject = subject
        self.hint = hint


@contextlib.contextmanager
def step(name: str, times: dict[str, float], subject: str = "", hint: Callable[[], str] = str) -> Iterator[None]:
    """Runs the body as one step, whose duration is added to `times`.

    Args:
        subject: module, library or file that the step is about.
        hint: called after a failure.

    Raises:
        StepError: the body raised an exception.
    """
    start = time.monotonic()
    try:
        yield
    except Exception as error:
        raise StepError(name, subject, hint()) from error
    finally:
        times[name] = times.get(name, 0.0) + time.monotonic() - start


def load_operators(request: Request, times: dict[str, float]) -> None:
    """Imports the modules and loads the libraries that register the model's operators; takes over torch's settings."""
    import torch

    for module in request.imports:
        with step("import", times, module):
            importlib.import_module(module)
    for library in request.libraries:
        with step("library", times, library):
            torch.ops.load_library(library)
    torch_settings.take_over()


def answer_or_failure(work: Callable[[dict[str, float]], Answer]) -> Answer | Failure:
    """Calls `work` with a dict for the times of its steps; returns its answer, or the Failure of a step."""
    try:
        return work({})
    except StepError as error:
        cause = error.__cause__ or error
        traceback.print_exception(cause)
        lack = exhausted(cause)
        if lack is not None:
            return Failure("room", lack.what, type(cause).__name__, lack.text, lack.hint)
        stream = unwritten(cause)
        if stream is not None:
            return Failure("system", "", type(cause).__name__, stream.text, stream.hint)
        known, refused = messages.ERRORS[error.step], refusal(cause)
        if refused is not None and (known.log_lines or not (error.hint or known.hint)):  # the log says no more
            return Failure("system", "", type(refused).__name__, system_text(refused), advice(refused))
        data = ErrorData.from_exception(cause)
        return Failure(error.step, error.subject, data.type, data.message, error.hint or data.hint)


def answer_request(run: Callable[[Request], Answer | Failure]) -> None:
    """Answers the request named on the command line and exits at once, without the slow shutdown of torch.

    Python's cycle collector seldom looks at the millions of objects that torch's compiler makes and keeps.
    """
    gc.set_threshold(*_COLLECTED_AFTER)
    request = messages.read_request(Path(sys.argv[1]))
    messages.write_answer(Path(request.folder), run(request))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
