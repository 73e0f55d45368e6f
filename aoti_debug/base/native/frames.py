"""Frames of call stacks, and a filter for frames that are irrelevant to a fault."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise, takewhile
from pathlib import PurePath

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass

_NAME_WIDTH = 110  # characters


def demangle(name: str) -> str:
    """Returns a mangled C++ name as it is written in the source; any other name unchanged."""
    base, dot, clone = name.partition(".")
    runtime = _cxx_runtime()
    if not base.startswith("_Z") or runtime is None:
        return name
    status = ctypes.c_int()
    address = runtime.__cxa_demangle(base.encode(), None, None, ctypes.byref(status))
    if not address:
        return name
    text = ctypes.string_at(address).decode("utf-8", errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return f"{text} [{clone}]" if dot else text


@cache
def _cxx_runtime() -> ctypes.CDLL | None:
    for name in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.__cxa_demangle.restype = ctypes.c_void_p
        return library
    return None


def short_name(function: str) -> str:
    """Returns a demangled name without parameters, template arguments and clone suffixes: "at::native::foo"."""
    name = re.sub(r" \[[^\]]*\]$", "", function)
    name = re.sub(r"\.(?:constprop|isra|part|cold|lto_priv|_omp_fn)\b.*$", "", name)
    name = name.replace("(anonymous namespace)", "{anonymous}").replace("operator()", "operator{call}")
    name = re.sub(r"operator(<<?=?|>>?=?|->\*?)", _escaped_operator, name)
    name = _without_brackets(name)
    name = re.sub(r"\s+(?:const|&&?|noexcept|volatile)(?=$|::)", "", name).strip()
    name = name.rpartition(" ")[2] if " " in name and "operator " not in name else name
    name = name.replace("{anonymous}::", "").replace("{call}", "()").replace("{lt}", "<").replace("{gt}", ">")
    return wording.truncated(name, _NAME_WIDTH)


def _escaped_operator(match: re.Match[str]) -> str:
    return "operator" + match.group(1).replace("<", "{lt}").replace(">", "{gt}")


def _without_brackets(name: str) -> str:
    """Removes everything inside (…) and <…>."""
    outside: list[str] = []
    depth = 0
    for character in name:
        if character in "(<":
            depth += 1
        elif character in ")>" and depth:
            depth -= 1
        elif not depth:
            outside.append(character)
    return "".join(outside)


MAX_FRAMES = 6  # shown of a stack
# Folders of generated C++ (aoti_debug/base/machine/cache.py, torch's own) and of torch's headers, before a file's name.
_COMPILED_FOLDER = re.compile(
    r"/[^\s,]*?/(?:scratch/[^/\s,]+|torchinductor_[^/\s,]+/[^/\s,]+|torch/include(?:/[^/\s,]+)*)/"
    r"(?=[^/\s,]+\.(?:cpp|h)\b)"
)


@dataclass(frozen=True)
class StackFrame:
    """A frame of a stack.

    Attributes:
        function: demangled; "" if there is no symbol.
        library: path; "" for code that belongs to no file.
        offset: link-time address in the library.
        file, line: of the source; "" and 0 without debug information. A frame of Python has these and a function only.
    """

    function: str
    library: str = ""
    offset: int = 0
    file: str = ""
    line: int = 0

    @property
    def text(self) -> str:
        """The frame as shown: "sum_rows at rows.cpp:12", "at::native::foo in libtorch_cpu.so", "libfoo.so+0x1234"."""
        if not self.function and not self.library:
            return f"address {self.offset:#x}, which is no code"
        if generated := _GENERATED.match(short_name(self.function)):
            return f"{generated[1]} at {PurePath(self.file).name}:{self.line}" if self.file else generated[1]
        library = PurePath(self.library).name
        if self.file:
            function = (short_name(self.function) or library) if library else self.function
            return f"{function} at {without_compiled_folders(self.file)}:{self.line}"
        if self.function:
            return f"{short_name(self.function)} in {library}" if library else short_name(self.function)
        return f"{library}+{self.offset:#x}"


def without_compiled_folders(text: str) -> str:
    """Returns a text with the names alone of files of generated C++, which are gone, and of torch's headers."""
    return _COMPILED_FOLDER.sub("", text)


# Prefixes of the (short) names of functions that occur on every stack and are irrelevant to a fault.
_NOISE_PREFIXES = (
    *("aoti_debug::", "aoti_debug_", "__restore_rt"),
    *("_start", "__libc_start", "start_thread", "clone", "__clone", "GOMP_", "gomp_", "__kmp"),
    *("c10::", "std::", "at::_ops::", "at::wrapper_", "at::internal::", "at::parallel_for", "at::functorch::"),
    *("torch::ADInplaceOrView", "torch::autograd", "torch::jit::", "torch::inductor::", "torch::aot_inductor::"),
    *("torch::throw", "torch::PyWarningHandler", "torch::python", "torch::detail::", "AOTInductorModel"),
    *("aoti_torch_proxy_executor", "aoti_torch_call_dispatcher"),
    *("pybind11::", "_Py", "Py", "ffi_", "_Unwind_", "__cxa_", "__gxx_", "__gnu_cxx::", "__cxxabiv1::"),
)
_API = ("aoti_debug_launch_begin", "aoti_debug_launch_end", "aoti_debug_call_begin", "aoti_debug_call_end")
_GENERATED = re.compile(r"torch::aot_inductor::AOTInductorModel::(_?(?:const_)?run_impl)$")
_RUNTIME_LIBRARY = re.compile(
    r"libtorch_python|libpython|/python[\d.]*$|/_ctypes\b|libffi|libgomp|libiomp|libgcc_s|ld-linux"
)
_OPENMP = re.compile(r"/lib(gomp|iomp5|omp)\b")
_INTERPRETER = re.compile(r"libpython|/python[\d.]*$")
_SYSTEM_LIBRARY = re.compile(r"/libc\.so|/libc-\d|/libpthread|/ld-linux|/libstdc\+\+|/libc\+\+|/libgcc_s|\[vdso\]")
# Python files: frames that the operators' decorators add, and the callers of a package.
_TORCH_FILE = re.compile(r"/torch/(?:_|library|autograd|utils|nn|fx)|/ctypes/__init__|/importlib/|^<frozen ")
_CALLER_FILE = re.compile(
    r"/torch/_inductor/package/|/torch/export/pt2_archive/|/aoti_debug/(?:runs/run|app/execute|app/python)/"
)
# Functions of an abort, above the code that caused it.
_ABORTING = re.compile(
    r"_*(?:pthread_kill|raise|abort|gsignal|assert_fail|libc_message|fortify_fail|chk_fail|GI_)"
    r"|malloc_printerr|__restore_rt|__stack_chk_fail|__gnu_cxx::|__cxxabiv1::|__cxa_|__gxx_"
    r"|std::(?:terminate|__terminate|rethrow_exception|__throw_)|_Unwind_|__clang_call_terminate"
)


def is_noise(frame: StackFrame) -> bool:
    """True if a frame is irrelevant: thread starts, torch's dispatcher and loader, the interpreter, our runtime."""
    name = short_name(frame.function)
    if _GENERATED.match(name):
        return False
    if "/runtime_shims/" in frame.file:
        return True
    if not name:
        return bool(_RUNTIME_LIBRARY.search(frame.library) or _SYSTEM_LIBRARY.search(frame.library))
    return name.startswith(_NOISE_PREFIXES) or bool(_RUNTIME_LIBRARY.search(frame.library))


def is_of_openmp(stack: Iterable[StackFrame]) -> bool:
    """True if a stack is that of a thread of OpenMP, which works for the launch of another one."""
    return any(_OPENMP.search(frame.library) for frame in stack)


def thrower_of(stack: Iterable[StackFrame]) -> str:
    """The function whose C++ exception ended the process, as nothing caught it; "" of a stack without one."""
    names = [short_name(frame.function) for frame in stack]
    callers = dict(pairwise(names))
    is_uncaught = "std::terminate" in names or {"_Unwind_RaiseException", "abort"} <= set(names)
    return callers.get("__cxa_throw", "") if is_uncaught else ""


def is_recording(stack: Iterable[StackFrame]) -> bool:
    """True if the innermost frames, but for those of the system, are of our runtime below a function of its C API.

    The functions that call a kernel are our runtime's as well, but are not called by its API.
    """
    for frame in stack:
        name = short_name(frame.function)
        if name.startswith(_API):
            return True
        if not (name.startswith(("aoti_debug::", "std::")) or _SYSTEM_LIBRARY.search(frame.library)):
            return False
    return False


def is_system_header(frame: StackFrame) -> bool:
    """True if a frame is of a function in a header of the compiler or the system, inlined into its caller."""
    return frame.file.startswith(("/usr/include/", "/usr/lib/"))


def is_interpreter(frame: StackFrame) -> bool:
    """True if a frame belongs to the Python interpreter."""
    return bool(_INTERPRETER.search(frame.library)) or frame.function.startswith("_PyEval")


def calls_package(stack: Iterable[StackFrame]) -> bool:
    """True if a Python stack is that of a thread in the call of a package."""
    return any(_CALLER_FILE.search(frame.file) for frame in stack)


def operator_python_frames(stack: Iterable[StackFrame]) -> tuple[StackFrame, ...]:
    """Returns the frames of a Python stack that belong to the operator.

    Frames of torch, and those outside of the call of the package, are left out.

    Args:
        stack: innermost first.
    """
    inside = takewhile(lambda frame: not _CALLER_FILE.search(frame.file), stack)
    return tuple(frame for frame in inside if not _TORCH_FILE.search(frame.file))


def without_abort_frames(stack: Sequence[StackFrame]) -> tuple[StackFrame, ...]:
    """Returns the stack of an abort without the innermost frames of abort itself."""
    for position, frame in enumerate(stack):
        name = short_name(frame.function)
        if not _ABORTING.match(name) and (name or not _SYSTEM_LIBRARY.search(frame.library)):
            return tuple(stack[position:])
    return tuple(stack)
