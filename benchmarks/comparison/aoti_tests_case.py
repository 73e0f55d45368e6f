"""Takes one model through plain AOTI and through a build at level 1, and compares the outputs bit for bit."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.instrument.builder.build import BuildOptions, BuildSummary, build_report
from benchmarks.comparison.aoti_tests_file import Case, Compiled
from benchmarks.comparison.aoti_tests_results import Outcome
from benchmarks.comparison.operator_batch import is_same

compile_and_package = torch._inductor.aoti_compile_and_package  # as torch has it: tests find another one there
_TIMES = 2  # calls with each input: a model may have a state
_LOADS = 10  # of a plain package whose outputs may not be repeatable


class TorchFailedError(Exception):
    """torch cannot do it; the cause is its error."""


@dataclass(frozen=True)
class Judged:
    """What became of a model; `compiled` is what plain AOTI has made of it."""

    outcome: Outcome
    said: str
    compiled: Compiled


class _Wrapped(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def judged(case: Case, folder: Path, at: Callable[[str], None]) -> Judged:
    """Takes a model the whole way.

    Args:
        folder: for the packages and what they record.
        at: is told the step that begins: "export", "plain", "ours".

    Raises:
        TorchFailedError: torch cannot export, compile or call it.
    """
    plain = folder / "plain.pt2"
    try:
        at("export")
        exported = _exported(case)
        at("plain")
        compile_and_package(exported, package_path=str(plain), inductor_configs=dict(case.options))
        outputs, expected = _called(plain, case, exported)
        _, again = _called(plain, case, exported)
    except Exception as error:  # torch raises of any type, and its words are what counts
        raise TorchFailedError from error
    compiled = Compiled(plain, outputs)
    at("ours")
    try:
        built = build_report(
            BuildOptions(
                exported, level=1, output=folder / "ours.pt2", inductor_configs=dict(case.options), against=plain
            )
        )
    except AotiDebugError as error:
        hint = f"; hint: {error.hint}" if error.hint else ""
        return Judged(Outcome.REFUSED, f"{type(error).__name__}: {wording.first_line(str(error))}{hint}", compiled)
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        return Judged(Outcome.FAILED, f"build: {said(error)}", compiled)
    recording = {"AOTI_DEBUG_LEVEL": "1", "AOTI_DEBUG_DIR": str(folder / "run"), "AOTI_DEBUG_PRINT": "none"}
    try:
        with mock.patch.dict(os.environ, recording):
            _, actual = _called(built.package, case, exported)
            _, actual_again = _called(built.package, case, exported)
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        return Judged(Outcome.FAILED, f"run: {said(error)}", compiled)
    if not difference(expected, again):
        if not (found := difference(expected, actual)):
            kernels, are_same = _kernels(built)
            outcome = Outcome.EQUAL if are_same else Outcome.OTHER_KERNELS
            return Judged(outcome, f"{len(expected)} tensors and numbers; {kernels}", compiled)
        repeats = "ours repeats its bits" if not difference(actual, actual_again) else "ours does not repeat its bits"
        loads = [_called(plain, case, exported)[1] for _ in range(_LOADS)]
        if not any(difference(expected, other) for other in loads):
            anew = _anew(case, exported, expected)
            return Judged(Outcome.OTHER_BITS, f"{found}; {_kernels(built)[0]}; {repeats}; {anew}", compiled)
    return Judged(Outcome.UNSTEADY, difference(expected, actual) or "ours has the bits of its first calls", compiled)


def _kernels(built: BuildSummary) -> tuple[str, bool]:
    """The kernels of a build beside those of the plain package, and whether they are the same."""
    compared, tuned = built.comparison, built.autotuning
    assert compared is not None
    other = [f"{one.kernel}: {one.reason}" for one in compared.different] + [f"no {name}" for name in compared.missing]
    number = tuned.users + tuned.earlier + tuned.measured
    found = f"{tuned.users} of {number} configurations from the cache, {tuned.measured} measured"
    return "; ".join([str(compared), *([found] if number else []), *other]), not other


def _exported(case: Case) -> Any:
    if case.exported is not None:
        return case.exported
    model = case.model if isinstance(case.model, nn.Module) else _Wrapped(case.model)
    keywords = {"dynamic_shapes": case.dynamic_shapes, "prefer_deferred_runtime_asserts_over_guards": True}
    inputs = copy.deepcopy(case.inputs[0])
    try:
        return torch.export.export(model, inputs, strict=True, **keywords)
    except Exception:  # noqa: BLE001  # of any type; the error of the other way is raised
        return torch.export.export(model, inputs, strict=False, **keywords)


def _called(package: Path, case: Case, exported: Any) -> tuple[list[Any], list[Any]]:
    """Loads a package and calls it; returns the outputs of the first calls, and all leaves that a caller can see."""
    model = torch._inductor.aoti_load_package(str(package))
    if weights := _weights_apart(case, exported):
        names = model.get_constant_fqns()
        if other := sorted(set(names) - set(weights)):
            raise LookupError(f"torch loads the package without weights, and calls some as no program does: {other}")
        model.load_constants({name: weights[name] for name in names}, check_full_update=True)
    outputs, leaves = [], []
    for turn in range(_TIMES):
        for inputs in case.inputs:
            given = copy.deepcopy(inputs)
            torch.manual_seed(0)
            output = model(*given)
            leaves += _leaves((output, given))
            outputs += [output] if turn == 0 else []
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return outputs, leaves


def _weights_apart(case: Case, exported: Any) -> Mapping[str, Tensor]:
    """The weights, by name, that a package of this case is loaded without; a call of one that has got none crashes."""
    from torch._inductor import config

    def setting(name: str) -> Any:
        return case.options.get(f"aot_inductor.{name}", getattr(config.aot_inductor, name))

    if setting("package_constants_in_so") or setting("package_constants_on_disk_format") == "binary_blob":
        return {}
    return {**exported.state_dict, **{n: c for n, c in exported.constants.items() if isinstance(c, Tensor)}}


def _leaves(value: Any) -> list[Any]:
    leaves = pytree.tree_leaves(value)
    return [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]


def difference(expected: Sequence[Any], actual: Sequence[Any]) -> str:
    """Where the leaves of two series of calls are not the same, bit for bit; "" if they are."""
    if len(expected) != len(actual):
        return f"{len(expected)} tensors and numbers, and {len(actual)}"
    pairs = [(at, *pair) for at, pair in enumerate(zip(expected, actual, strict=True))]
    other = [(at, one, two) for at, one, two in pairs if not _is_same_leaf(one, two)]
    if not other:
        return ""
    at, one, two = other[0]
    return f"{len(other)} of {len(pairs)} tensors and numbers, {at} first: {_apart(one, two)}"


def _is_same_leaf(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return is_same(one, other)
    return type(one) is type(other) and bool(one == other)


def _apart(one: Any, other: Any) -> str:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return f"{one!r:.40}, {other!r:.40}"
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{one.dtype} {tuple(one.shape)}, {other.dtype} {tuple(other.shape)}"
    left, right = (t.cpu().to(torch.complex128 if t.is_complex() else torch.float64) for t in (one, other))
    elements = int(((left != right) & ~((left != left) & (right != right))).sum())
    farthest = float((left - right).abs().nan_to_num(0.0).max())
    return f"{one.dtype} {tuple(one.shape)}, {elements} elements, {farthest:.3g} apart"


def _anew(case: Case, exported: Any, expected: Sequence[Any]) -> str:
    """Whether plain AOTI has other bits as well when it compiles once more, and with an empty cache of Inductor."""
    same = []
    for name, cache in (("compiled once more", nullcontext()), ("with an empty cache", empty_cache())):
        with cache, tempfile.TemporaryDirectory(prefix="aoti-debug-plain-") as folder:
            try:
                file = Path(folder) / "plain.pt2"
                compile_and_package(exported, package_path=str(file), inductor_configs=dict(case.options))
                found = difference(expected, _called(file, case, exported)[1])
            except Exception as error:  # noqa: BLE001  # torch raises of any type
                found = said(error)
            same.append(f"plain {name}: {found or 'the same bits'}")
    return "; ".join(same)


@contextmanager
def empty_cache() -> Iterator[None]:
    """Inductor has another cache inside of a `with`, which is empty."""
    from torch._inductor.utils import clear_caches

    with tempfile.TemporaryDirectory(prefix="aoti-debug-cache-") as folder:
        with mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder):
            clear_caches()
            yield
        clear_caches()


def said(error: BaseException) -> str:
    """The type and the first line of an exception."""
    return f"{type(error).__name__}: {wording.first_line(str(error))}"
