from __future__ import annotations

import errno

import pytest
import torch

from aoti_debug.base.machine.exhaustion import chain_of, exhausted, lacking, raised_refusal, refusal


@pytest.mark.parametrize(
    ("error", "what", "text"),
    [
        (OSError(errno.ENOSPC, "x", "/tmp/a.so"), "disk space", "No space left on device: /tmp/a.so"),
        (OSError(errno.EDQUOT, "x"), "disk space", "Disk quota exceeded"),
        (OSError(errno.ENOMEM, "x"), "memory", "Cannot allocate memory"),
        (MemoryError(), "memory", "out of memory"),
        (MemoryError("std::bad_alloc"), "memory", "std::bad_alloc"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried\nmore"), "device memory", "CUDA out of memory. Tried"),
        (RuntimeError("CUDA error: out of memory\nmore"), "device memory", "CUDA error: out of memory"),
        (RuntimeError("CUDA driver error: out of memory"), "device memory", "CUDA driver error: out of memory"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
            "memory",
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.",
        ),
    ],
)
def test_what_is_exhausted(error: BaseException, what: str, text: str) -> None:
    found = exhausted(error)
    assert found is not None
    assert (found.what, found.text) == (what, text)
    assert {"disk space": "TMPDIR", "memory": "by-reference", "device memory": "nvidia-smi"}[what] in found.hint


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("/tmp/cc1.s: fatal error: error writing to /tmp/cc1.s: No space left on device", "disk space"),
        ("cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes", "memory"),
        ("Traceback (most recent call last):\nMemoryError", "memory"),
        ("a.cpp:1:1: error: 'x' does not name a type", ""),
    ],
)
def test_what_a_text_says(text: str, what: str) -> None:
    assert lacking(text) == what


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "x"), RuntimeError("CUDA error: invalid argument"), ValueError("out of memory")]
)
def test_other_exceptions(error: BaseException) -> None:
    assert exhausted(error) is None


def test_an_exception_that_came_from_one() -> None:
    def fail() -> None:
        try:
            raise OSError(errno.ENOSPC, "x", "/f")
        except OSError as error:
            raise RuntimeError("inductor failed") from error

    with pytest.raises(RuntimeError) as caught:
        fail()
    found = exhausted(caught.value)
    assert found is not None
    assert found.text == "No space left on device: /f"
    assert [type(link) for link in chain_of(caught.value)] == [RuntimeError, OSError]


def test_a_circle_ends() -> None:
    first, second = ValueError(), TypeError()
    first.__cause__, second.__cause__ = second, first
    assert exhausted(first) is None


def test_what_the_system_has_refused() -> None:
    error = ValueError("x")
    assert refusal(error) is None
    error.__cause__ = cause = OSError(errno.EIO, "Input/output error")
    assert refusal(error) is cause
    assert refusal(FileNotFoundError(errno.ENOENT, "No such file")) is None


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("Traceback …\n  x\nOSError: [Errno 5] Input/output error: '/a/b'\n", (errno.EIO, "/a/b")),
        ("a.b.PermissionError: [Errno 13] Permission denied", (errno.EACCES, None)),
        ("OSError: [Errno 5] Input/output error\nand went on", None),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x'", None),
        ("", None),
    ],
)
def test_what_a_process_has_been_refused(output: str, found: tuple[int, str | None] | None) -> None:
    error = raised_refusal(output)
    assert (error and (error.errno, error.filename)) == found
