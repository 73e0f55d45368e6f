"""Leaves out decompositions, lowerings and candidates of autotuning while a program is lowered; notes what is applied.

Passes and lowerings are noted where torch's compiler bisector asks whether to apply them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.frontend.protocol.build_failure import BuildStage, Position
from aoti_debug.instrument.frontend.protocol.messages import Applied, LeftOut, TunedChoice
from aoti_debug.instrument.frontend.worker.called_operators import find_overload
from aoti_debug.instrument.frontend.worker.position_file import Positions, replaced

_PASSES = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes")


@contextlib.contextmanager
def leaving_out(left_out: LeftOut | None) -> Iterator[None]:
    """Inside the `with`, operators are called as they are; at its end, what was applied is written to the log."""
    if left_out is None:
        yield
        return
    passes: dict[str, None] = {}
    lowerings: dict[str, None] = {}
    with (
        _leaving_out_candidates(left_out.candidates),
        _decomposed(left_out.decompositions) as decompositions,
        _asked(left_out.lowerings, passes, lowerings),
        _without_lowerings_of_users(left_out.lowerings),
    ):
        try:
            yield
        finally:
            if left_out.log:
                applied = Applied(tuple(passes), tuple(decompositions), tuple(lowerings))
                Path(left_out.log).write_text(json_data.to_text(applied))


@contextlib.contextmanager
def _asked(without: tuple[str, ...], passes: dict[str, None], lowerings: dict[str, None]) -> Iterator[None]:
    """Answers torch's compiler bisector."""
    from torch._inductor.compiler_bisector import CompilerBisector

    def disable_subsystem(backend: str, subsystem: str, debug_info: Callable[[], str] | None = None) -> bool:
        if backend == "inductor" and subsystem in _PASSES and debug_info is not None:
            passes[debug_info()] = None
        if (backend, subsystem) != ("inductor", "lowerings"):
            return False
        from torch._inductor.virtualized import V

        node = V.graph.current_node
        operator = node.target
        if not _can_be_called(operator) or _has_number_for_tensor(node):
            return False
        lowerings[str(operator)] = None
        return str(operator) in without

    original = CompilerBisector.disable_subsystem
    CompilerBisector.disable_subsystem = disable_subsystem
    try:
        yield
    finally:
        CompilerBisector.disable_subsystem = original


@contextlib.contextmanager
def _without_lowerings_of_users(without: tuple[str, ...]) -> Iterator[None]:
    """Removes lowerings of operators that do not come with torch: the bisector is not asked about these."""
    import torch
    from torch._inductor import lowering

    operators = [find_overload(name) for name in without]
    custom = [op for op in operators if op is not None and not torch._library.utils.is_builtin(op)]
    removed = {op: lowering.lowerings.pop(op) for op in custom if op in lowering.lowerings}
    try:
        yield
    finally:
        lowering.lowerings.update(removed)


@contextlib.contextmanager
def _decomposed(without: tuple[str, ...]) -> Iterator[dict[str, None]]:
    """Yields the operators that are decomposed inside the `with`, other than those of `without`, as they come."""
    from torch._inductor import decomposition

    table = decomposition.decompositions
    original = dict(table)
    met: dict[str, None] = {}
    for operator, decompose in original.items():
        table[operator] = _noting(operator, decompose, met)
    for name in without:
        table.pop(find_overload(name), None)
    decomposition.fast_random_decomps.cache_clear()
    try:
        yield met
    finally:
        table.clear()
        table.update(original)
        decomposition.fast_random_decomps.cache_clear()


def _noting(operator: Any, decompose: Callable[..., Any], met: dict[str, None]) -> Callable[..., Any]:
    @functools.wraps(decompose)
    def noting(*args: Any, **kwargs: Any) -> Any:
        result = decompose(*args, **kwargs)
        if result is not NotImplemented and _can_be_called(operator):
            met[str(operator)] = None
        return result

    return noting


def _has_number_for_tensor(node: Any) -> bool:
    """True if an argument is a number where the operator's schema has a tensor: only lowerings take it."""
    arguments = zip(node.target._schema.arguments, node.args, strict=False)
    return any(str(argument.type) == "Tensor" and isinstance(value, int | float) for argument, value in arguments)


def _can_be_called(operator: Any) -> bool:
    """True if generated code can call an operator as it is.

    An operator without a C shim is called by torch's proxy executor, which refuses numbers with a default value behind
    the `*` of a schema: beta and alpha of addmm.
    """
    import torch
    from torchgen.aoti.fallback_ops import inductor_fallback_ops

    if not isinstance(operator, torch._ops.OpOverload):
        return False
    if str(operator) in inductor_fallback_ops:
        return True
    numbers = ("int", "float", "number", "Scalar", "bool")
    return not any(
        argument.kwarg_only and argument.has_default_value() and str(argument.type) in numbers
        for argument in operator._schema.arguments
    )


@contextlib.contextmanager
def candidates_noted(positions: Positions) -> Iterator[None]:
    """Notes the candidates of matrix products and of Triton kernels that this process compiles or times."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    def time_choice(original: Any) -> Any:
        if not isinstance(original, classmethod):  # another torch times them in another way
            return original
        note = positions.noting(lambda args: _position(BuildStage.AUTOTUNING, choice_of(args[1])))
        return classmethod(note(original.__func__))

    def compiled(args: tuple[Any, ...]) -> Position:
        return _position(BuildStage.TRITON, config_of(args[0].fn.__name__, args[1]))

    def timed(args: tuple[Any, ...]) -> Position:
        return _position(BuildStage.AUTOTUNING, config_of(args[0].fn.__name__, args[1].config))

    with (
        replaced(AlgorithmSelectorCache, "benchmark_choice", time_choice),
        replaced(CachingAutotuner, "_precompile_config", positions.noting(compiled)),
        replaced(CachingAutotuner, "bench", positions.noting(timed)),
    ):
        yield


@contextlib.contextmanager
def _leaving_out_candidates(candidates: Sequence[TunedChoice]) -> Iterator[None]:
    """Inside the `with`, these are not compiled or timed; where no other candidate is left, they are."""
    if not candidates:
        yield
        return
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    def select(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def select(self: Any, name: str, choices: list[Any], *args: Any, **kwargs: Any) -> Any:
            return original(self, name, remaining(choices, choice_of, candidates), *args, **kwargs)

        return select

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __init__(self: Any, fn: Any, triton_meta: Any, configs: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            kept = remaining(configs, lambda config: config_of(fn.__name__, config), candidates)
            original(self, fn, triton_meta, kept, *args, **kwargs)

        return __init__

    with replaced(AlgorithmSelectorCache, "__call__", select), replaced(CachingAutotuner, "__init__", make):
        yield


def remaining(
    items: Sequence[Any], candidate_of: Callable[[Any], TunedChoice], without: Sequence[TunedChoice]
) -> list[Any]:
    """The items other than some candidates; all of them if none were left."""
    kept = [item for item in items if candidate_of(item) not in without]
    return kept or list(items)


def choice_of(choice: Any) -> TunedChoice:
    """The candidate that a torch._inductor.ir.ChoiceCaller is."""
    return TunedChoice(str(choice.name), str(getattr(choice, "description", "") or ""))


def config_of(kernel: str, config: Any) -> TunedChoice:
    """The candidate that a triton.Config of a kernel is: "XBLOCK: 128, num_warps: 4, num_stages: 1"."""
    values = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return TunedChoice(kernel, ", ".join(f"{name}: {value}" for name, value in values.items()))


def _position(stage: BuildStage, candidate: TunedChoice) -> Position:
    return Position(stage, candidate.name, candidate=candidate.configuration)
