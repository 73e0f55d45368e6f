from __future__ import annotations

import errno

import pytest

from aoti_debug.base import errors
from aoti_debug.base.errors import AotiDebugError, ArtifactError, InputMismatch, Mismatch, TargetError, UsageError
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.processes.messages import ErrorData

MISMATCH = Mismatch("x", 1, "dtype", "float32[2] on cpu", "int64[2] on cpu", "x is wrong", "convert it")


def carried(error: BaseException) -> ErrorData:
    return json_data.parse(ErrorData, json_data.to_text(ErrorData.from_exception(error)))


@pytest.mark.parametrize("cls", [cls for cls in errors.BY_NAME.values() if cls is not InputMismatch])
def test_an_error_of_this_library_arrives_as_it_was(cls: type[AotiDebugError]) -> None:
    recreated = carried(cls("no\nfile", hint="pass one")).to_error()
    assert recreated is not None
    assert (type(recreated), str(recreated), recreated.hint) == (cls, "no\nfile", "pass one")


def test_inputs_that_do_not_fit_arrive_with_all_mismatches() -> None:
    sent = InputMismatch([MISMATCH, MISMATCH])
    recreated = carried(sent).to_error()
    assert isinstance(recreated, InputMismatch)
    assert (recreated.mismatches, str(recreated), recreated.hint) == ((MISMATCH, MISMATCH), str(sent), "convert it")


def test_an_error_that_is_not_in_the_table_arrives_as_what_it_is_derived_from() -> None:
    class SpecialError(ArtifactError):
        pass

    data = carried(SpecialError("x"))
    assert (data.type, type(data.to_error())) == ("SpecialError", ArtifactError)


def test_any_other_exception_is_only_told() -> None:
    class UsageError(ValueError):  # another library's
        error_code = 700

    data = carried(UsageError("x"))
    assert data == ErrorData("UsageError", "x", code=700)
    assert data.to_error() is None


@pytest.mark.parametrize("code", [None, "700", 7.5])
def test_a_code_is_an_integer(code: object) -> None:
    error = RuntimeError("x")
    error.error_code = code  # type: ignore[attr-defined]
    assert carried(error).code is None


def test_an_exception_that_says_what_is_exhausted_becomes_an_error() -> None:
    data = ErrorData.from_exception(OSError(errno.ENOSPC, "x", "/tmp/f"))
    assert (data.type, data.ours, data.lacks) == ("OSError", "", "disk space")
    error = data.to_error()
    assert isinstance(error, TargetError)
    assert str(error) == f"not enough disk space: {data.message}"
    assert error.hint.startswith("free some space; ")
    empty = ErrorData.from_exception(MemoryError()).to_error()
    assert str(empty) == "not enough memory: MemoryError"


def test_an_error_of_this_library_that_came_from_a_full_disk_is_itself() -> None:
    error = UsageError("cannot write x", hint="another place")
    error.__cause__ = OSError(errno.ENOSPC, "x")
    assert ErrorData.from_exception(error).lacks == ""
