from __future__ import annotations

import errno
from typing import NoReturn

import pytest

from aoti_debug.base.errors import TargetError, ToolchainError
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Failure
from aoti_debug.instrument.frontend.worker import answer_request


def failure_of(error: Exception, cause: Exception | None = None) -> Failure:
    def fail(times: dict[str, float]) -> NoReturn:
        with answer_request.step("lower", times):
            raise error from cause

    failure = answer_request.answer_or_failure(fail)
    assert isinstance(failure, Failure)
    return failure


@pytest.mark.parametrize(
    ("error", "cause", "what", "text"),
    [
        (OSError(errno.ENOSPC, "x", "/c/a.so"), None, "disk space", "No space left on device: /c/a.so"),
        (RuntimeError("inductor"), MemoryError("std::bad_alloc"), "memory", "std::bad_alloc"),
        (RuntimeError("CUDA out of memory. Tried\nmore"), None, "device memory", "CUDA out of memory. Tried"),
    ],
)
def test_what_this_machine_lacks_is_no_fault_of_the_compiler(
    error: Exception, cause: Exception | None, what: str, text: str
) -> None:
    raised = messages.error_of(failure_of(error, cause), lambda lines: f"; {lines} lines of the log")
    assert isinstance(raised, TargetError)
    assert str(raised) == f"there is not enough {what} to build the package: {text}; 0 lines of the log"
    assert raised.hint


def test_other_exceptions_are(capsys: pytest.CaptureFixture[str]) -> None:
    raised = messages.error_of(failure_of(ValueError("no such op")), lambda _: "")
    assert isinstance(raised, ToolchainError)
    assert str(raised) == "Inductor cannot lower the model: ValueError: no such op"


def test_what_the_system_refuses_is_not_either() -> None:
    failure = failure_of(RuntimeError("inductor"), OSError(errno.EIO, "x", "/c/a.pt2"))
    raised = messages.error_of(failure, lambda lines: f"; {lines} lines of the log")
    assert isinstance(raised, TargetError)
    assert str(raised) == "the package cannot be built: Input/output error: /c/a.pt2; 0 lines of the log"
    assert "dmesg" in raised.hint


def test_a_stream_of_torch_that_fails_is_a_file_that_cannot_be_written() -> None:
    failure = failure_of(RuntimeError("basic_ios::clear: iostream error\nmore"))
    raised = messages.error_of(failure, lambda lines: f"; {lines} lines of the log")
    assert isinstance(raised, TargetError)
    said = "the package cannot be built: a file cannot be written: basic_ios::clear: iostream error"
    assert (str(raised), "df -h" in raised.hint) == (f"{said}; 0 lines of the log", True)
