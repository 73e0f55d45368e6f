"""Settings of torch that belong to a process and that change what operators compute: precision, determinism, threads.

The process that runs a package, evaluates a program or replays a launch for another one is handed those of the process
that asked. They are written down as names and plain values: {"float32_matmul_precision": "high"}.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write

Value = bool | int | str

THREADS = "num_threads"
DENORMALS = "flush_denormal"
_VARIABLE = "_AOTI_DEBUG_TORCH_SETTINGS"  # of the processes that this one starts: a JSON object
_BOOLEANS = (False, True)
_OF_PRECISION = ("backends.cuda.matmul.fp32_precision", "backends.mkldnn.matmul.fp32_precision")
_PRECISIONS = ("none", "ieee", "tf32", "bf16")
_DETERMINISTIC = "deterministic_algorithms"
_DTYPE = "default_dtype"
_PRECISION = "float32_matmul_precision"
_CUDNN = "backends.cudnn.allow_tf32"  # torch compares it with those of its operators (aten/src/ATen/Context.cpp)
_OF_CUDNN = ("backends.cudnn.conv.fp32_precision", "backends.cudnn.rnn.fp32_precision")
_TAKEN_OVER = {_PRECISION: _OF_PRECISION, _CUDNN: _OF_CUDNN}  # the value of a general setting, by others
_ATTRIBUTES: Mapping[str, Value] = {  # with their values in a new process
    "utils.deterministic.fill_uninitialized_memory": True,
    "backends.fp32_precision": "none",
    "backends.cuda.matmul.fp32_precision": "none",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction": True,
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction": True,
    "backends.cuda.matmul.allow_fp16_accumulation": False,
    "backends.cudnn.enabled": True,
    "backends.cudnn.benchmark": False,
    "backends.cudnn.deterministic": False,
    _CUDNN: True,
    "backends.cudnn.fp32_precision": "none",
    "backends.cudnn.conv.fp32_precision": "tf32",
    "backends.cudnn.rnn.fp32_precision": "tf32",
    "backends.mkldnn.enabled": True,
    "backends.mkldnn.deterministic": False,
    "backends.mkldnn.fp32_precision": "none",
    "backends.mkldnn.matmul.fp32_precision": "none",
    "backends.mkldnn.conv.fp32_precision": "none",
    "backends.mkldnn.rnn.fp32_precision": "none",
}


@dataclass(frozen=True)
class _Setting:
    """A setting of torch.

    Attributes:
        choices: the values that it can have.
        default: its value in a new process; None where that depends on the machine.
        read: returns it; takes torch.
        write: changes it; takes torch and the value.
        statement: the same as Python source, for a value.
    """

    choices: Container[Any]
    default: Value | None
    read: Callable[[Any], Value]
    write: Callable[[Any, Any], None]
    statement: Callable[[Any], str]


def _attribute(path: str, default: Value) -> _Setting:
    """An attribute below torch: "backends.cudnn.enabled", a boolean or a precision of float32."""
    owner, _, name = path.rpartition(".")

    def owner_of(torch: Any) -> Any:
        for part in owner.split("."):
            torch = getattr(torch, part)
        return torch

    return _Setting(
        choices=_BOOLEANS if isinstance(default, bool) else _PRECISIONS,
        default=default,
        read=lambda torch: _plain(getattr(owner_of(torch), name)),
        write=lambda torch, value: setattr(owner_of(torch), name, value),
        statement=lambda value: f"torch.{path} = {value!r}",
    )


def _attention(kind: str) -> _Setting:
    """A backend of scaled dot product attention, which may be used or not."""
    return _Setting(
        choices=_BOOLEANS,
        default=True,
        read=lambda torch: bool(getattr(torch.backends.cuda, f"{kind}_sdp_enabled")()),
        write=lambda torch, value: getattr(torch.backends.cuda, f"enable_{kind}_sdp")(value),
        statement=lambda value: f"torch.backends.cuda.enable_{kind}_sdp({value!r})",
    )


def _deterministic(torch: Any) -> str:
    if not torch.are_deterministic_algorithms_enabled():
        return "off"
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "error"


# General settings come before those that take over their values.
_SETTINGS: Mapping[str, _Setting] = {
    _PRECISION: _Setting(
        choices=("highest", "high", "medium"),
        default="highest",
        read=lambda torch: str(torch.get_float32_matmul_precision()),
        write=lambda torch, value: torch.set_float32_matmul_precision(value),
        statement=lambda value: f"torch.set_float32_matmul_precision({value!r})",
    ),
    _DETERMINISTIC: _Setting(
        choices=("off", "warn", "error"),
        default="off",
        read=_deterministic,
        write=lambda torch, value: torch.use_deterministic_algorithms(value != "off", warn_only=value == "warn"),
        statement=lambda value: (
            f"torch.use_deterministic_algorithms({value != 'off'}{', warn_only=True' if value == 'warn' else ''})"
        ),
    ),
    _DTYPE: _Setting(
        choices=("float32", "float64", "float16", "bfloat16"),
        default="float32",
        read=lambda torch: str(torch.get_default_dtype()).removeprefix("torch."),
        write=lambda torch, value: torch.set_default_dtype(getattr(torch, value)),
        statement=lambda value: f"torch.set_default_dtype(torch.{value})",
    ),
    THREADS: _Setting(
        choices=range(1, 4097),
        default=None,
        read=lambda torch: int(torch.get_num_threads()),
        write=lambda torch, value: torch.set_num_threads(value),
        statement=lambda value: f"torch.set_num_threads({value!r})",
    ),
    DENORMALS: _Setting(
        choices=_BOOLEANS,
        default=False,
        read=lambda _: sys.float_info.min / 2 == 0,  # torch does not tell it
        write=lambda torch, value: torch.set_flush_denormal(value),
        statement=lambda value: f"torch.set_flush_denormal({value!r})",
    ),
    **{path: _attribute(path, default) for path, default in _ATTRIBUTES.items()},
    **{f"backends.cuda.{kind}_sdp": _attention(kind) for kind in ("flash", "mem_efficient", "math", "cudnn")},
}


def capture() -> dict[str, Value]:
    """Returns the settings of this process that differ from torch's defaults, and the number of threads.

    What torch does not have, or does not tell, is left out: it tells no `float32_matmul_precision` and no `allow_tf32`
    where both of its interfaces were used, and the `fp32_precision` of each backend then says it. Imports torch.
    """
    import torch

    found: dict[str, Value] = {}
    for name, setting in _SETTINGS.items():
        try:
            value = setting.read(torch)
        except (AttributeError, RuntimeError):
            continue
        if value != setting.default or name in _taken_over(found):
            found[name] = value
    return found


def _taken_over(settings: Container[str]) -> set[str]:
    """The settings whose value general ones among the given names set."""
    return {name for general, names in _TAKEN_OVER.items() if general in settings for name in names}


def apply(settings: Mapping[str, Value]) -> None:
    """Makes settings those of this process: the given ones, and the defaults of all others.

    Where a general setting is given, those that take its value over and are not given have that value. A name that is
    not known, as a newer aoti-debug may have written it, is passed over. Imports torch.
    """
    import torch

    taken_over = _taken_over(settings)
    for name, setting in _SETTINGS.items():
        wanted = settings.get(name, None if name in taken_over else setting.default)
        try:
            if wanted is not None and setting.read(torch) != wanted:
                setting.write(torch, wanted)
        except AttributeError:  # this torch does not have it
            continue
        except RuntimeError:  # torch does not tell it: what follows sets each backend's
            if name == _CUDNN:
                setting.write(torch, wanted)
            elif name != _PRECISION:
                raise


@contextlib.contextmanager
def applied(settings: Mapping[str, Value]) -> Iterator[None]:
    """Makes settings those of this process for the length of a `with` block, as `apply` does."""
    before = capture()
    apply(settings)
    try:
        yield
    finally:
        apply(before)


def environment(settings: Mapping[str, Value] | None) -> dict[str, str]:
    """The variables of a process that is handed settings; {} for None."""
    return {} if settings is None else {_VARIABLE: json.dumps(dict(settings))}


def take_over() -> None:
    """Applies the settings that the process hands on which has started this one; none, if it hands on none."""
    text = os.environ.get(_VARIABLE)
    if text is not None:
        apply(json.loads(text))


def keep(folder: Path) -> None:
    """Writes the settings of this process into a folder, if it has not; without room for them they stay unknown."""
    file = _file(folder, os.getpid())
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            atomic_write.write(file, json.dumps(capture()))


def kept(folder: Path, process: int) -> dict[str, Value] | None:
    """The settings that a process has written into a folder; None if it has not."""
    try:
        found: dict[str, Value] = json.loads(_file(folder, process).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    check(found)
    return found


def _file(folder: Path, process: int) -> Path:
    return folder / f"torch-settings-{process}.json"


def statements(settings: Mapping[str, Value] | None) -> list[str]:
    """The lines of Python that make settings those of a new process, without the names that are not known."""
    known = _without_implied(settings)
    return [setting.statement(known[name]) for name, setting in _SETTINGS.items() if name in known]


def check(settings: Mapping[str, Any]) -> None:
    """Checks settings that were read from a file.

    Raises:
        ValueError: one has a value that it cannot have.
    """
    for name, value in settings.items():
        choices = _SETTINGS[name].choices if name in _SETTINGS else (value,)
        if value not in choices or (name == THREADS and isinstance(value, bool)):
            raise ValueError(f"{name} is {value!r}")


def described(settings: Mapping[str, Value] | None) -> list[str]:
    """Each setting in a few words: "float32_matmul_precision high", "2 threads"."""
    return [
        wording.pluralize(int(value), "thread") if name == THREADS else f"{name} {value}"
        for name, value in _without_implied(settings).items()
    ]


def _without_implied(settings: Mapping[str, Value] | None) -> dict[str, Value]:
    """The settings without those that general ones have set: torch does not tell the general ones where they differ."""
    known = dict(settings or {})
    if _PRECISION in known:
        for name in _OF_PRECISION:
            known.pop(name, None)
    if _CUDNN in known:
        for name in _OF_CUDNN:
            if known.get(name) == "none":
                del known[name]
    return known


def _plain(value: Any) -> Value:
    return value if isinstance(value, (bool, int, str)) else str(value)
