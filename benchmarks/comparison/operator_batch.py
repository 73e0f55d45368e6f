"""Takes some operators through plain AOTI and through aoti-debug for operators.py, and prints results as JSON lines.

usage: python -m benchmarks.comparison.operator_batch OPERATOR ... --work DIR [--device cpu|cuda] [--dtype NAME]
    [--dynamic] [--samples N]

The operators are one program. Where something is wrong with it, it is made again from a part of them, until one
operator is left: only then it is said of that one.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, UsageError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.compare import PACKAGE, CompareOptions, compare
from aoti_debug.compare.comparison import BAD, Comparison
from aoti_debug.compare.outcome import compared_text, kind_of
from aoti_debug.compare.text import output_text, state_text
from aoti_debug.package.pt2 import load_program
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE
from aoti_debug.runs.rundir.launch import Launch
from benchmarks.comparison.operator_results import NO_REPRO, REPLAYED, UNDEFINED, Outcome, Result
from benchmarks.models import operator_samples
from benchmarks.models.operator_samples import NoSamplesError, Operator, Program, Target
from tests.many_replays import replay_many

_HOLDS = ": as recorded"
_AT_HAND = ("aten", "prim", "prims")  # namespaces of operators that `import torch` registers
_CALLS = 10  # of a package whose results may not be repeatable


@dataclass(eq=False)
class _FailedError(Exception):
    """Something is wrong with a program.

    Attributes:
        operators: the ones that it is laid to; () if that is not known.
    """

    outcome: Outcome
    said: str
    operators: frozenset[str] = frozenset()


def results(operators: Sequence[Operator], target: Target, work: Path) -> Iterator[Result]:
    """What became of operators that can be exported."""
    folder = Path(tempfile.mkdtemp(dir=work))
    failures: list[_FailedError] = []
    texts: dict[str, list[str]] = {operator.name: [] for operator in operators}
    try:
        _take(operators, target, folder, failures, texts)
    except _FailedError as failed:
        failures.append(failed)
    if not failures:
        yield from (Result(name, Outcome.GOOD, "; ".join(said)) for name, said in texts.items())
        return
    if len(operators) == 1:
        yield Result(operators[0].name, failures[0].outcome, failures[0].said)
        return
    for found in failures:
        blamed = ", ".join(sorted(found.operators)) or "one of these"
        print(f"{len(operators)} operators: {blamed}: {found.outcome.value}: {found.said}", file=sys.stderr)
    _check_device()
    if any(not found.operators for found in failures):
        middle = len(operators) // 2
        parts = [operators[:middle], operators[middle:]]
    else:
        guilty = frozenset[str]().union(*(found.operators for found in failures))
        yield from (Result(name, Outcome.GOOD, "; ".join(texts[name])) for name in texts if name not in guilty)
        parts = [[operator] for operator in operators if operator.name in guilty]
    for part in parts:
        yield from results(part, target, work)


def draws_numbers(exported: Any) -> bool:
    """True if an operator of an exported program draws from a generator."""
    graphs = [part.graph for part in exported.graph_module.modules() if isinstance(part, torch.fx.GraphModule)]
    tags = (getattr(node.target, "tags", ()) for graph in graphs for node in graph.nodes)
    return any(torch.Tag.nondeterministic_seeded in found for found in tags)


def registering_modules(exported: Any) -> tuple[str, ...]:
    """The modules of torch that have to be imported before a saved program can be loaded: --import names them."""
    nodes = [node.target for node in exported.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    names = sorted({target.name().partition(".")[0] for target in nodes if target.namespace not in _AT_HAND})
    return tuple(load_program.registering_modules(names)) if names else ()


def _check_device() -> None:
    """Ends the process if its GPU cannot be used any more; whoever started it tries the rest in another one."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _take(
    operators: Sequence[Operator],
    target: Target,
    folder: Path,
    failures: list[_FailedError],
    texts: dict[str, list[str]],
) -> None:
    """Takes a program the whole way.

    Args:
        failures: gets those that only some operators are guilty of.
        texts: gets what was compared and replayed of each operator.

    Raises:
        _FailedError: the whole program failed.
    """
    program = _said(Outcome.NO_EXPORT, lambda: operator_samples.export(operators, target))
    saved = folder / "program.pt2"
    _said(Outcome.NO_EXPORT, lambda: torch.export.save(program.exported, saved))
    plain = _said(Outcome.NO_AOTI, lambda: _compiled(program, folder / "plain.pt2"))
    expected = _said(Outcome.NO_AOTI, lambda: _called(plain, program))
    unsteady = _other_bits(program, expected, _said(Outcome.NO_AOTI, lambda: _called(plain, program)))
    if unsteady:
        failures.append(_FailedError(Outcome.UNSTEADY, "two calls of the plain package give other bits", unsteady))
    user_code = UserCode(registering_modules(program.exported))
    try:
        comparison = compare(CompareOptions(model=saved, out=folder / "compares", user_code=user_code))
    except AotiDebugError as error:
        hint = f"; hint: {error.hint}" if error.hint else ""
        raise _FailedError(Outcome.FAILED, f"{type(error).__name__}: {error}{hint}") from error
    if comparison.unfinished:
        raise _FailedError(Outcome.FAILED, f"the run did not end well: {comparison.unfinished}")
    package = Path(comparison.directory) / PACKAGE
    os.environ.update(AOTI_DEBUG_LEVEL="1", AOTI_DEBUG_DIR=str(folder / "run"), AOTI_DEBUG_PRINT="none")
    actual = _said(Outcome.FAILED, lambda: _called(torch._inductor.aoti_load_package(str(package)), program))
    if other := _other_bits(program, expected, actual) - unsteady:
        failures.append(_FailedError(Outcome.OTHER_BITS, "the instrumented package gives other bits", other))
    kind = kind_of(comparison)
    is_open = kind is INCOMPLETE and draws_numbers(program.exported)  # eager draws others
    if kind is not CLEAN and not is_open:
        words = f"{kind.heading} {_said_by(comparison)}"
        failures.append(_FailedError(Outcome.COMPARED, words, _not_clean(program, comparison)))
    _replay(operators, comparison, folder, failures, texts)
    if any(failure.outcome in (Outcome.OTHER_BITS, Outcome.REPLAYED) for failure in failures):
        _forgive(program, plain, expected, failures)


def _forgive(program: Program, plain: Any, expected: Sequence[Tensor], failures: list[_FailedError]) -> None:
    """Calls the plain package some more times: what it does not repeat either is no failure of the other one."""
    calls = [_said(Outcome.NO_AOTI, lambda: _called(plain, program)) for _ in range(_CALLS)]
    unsteady = frozenset[str]().union(*(_other_bits(program, expected, actual) for actual in calls))
    for at, failure in enumerate(failures):
        is_bits = failure.outcome in (Outcome.OTHER_BITS, Outcome.REPLAYED)
        if is_bits and failure.operators and failure.operators <= unsteady:
            words = f"of {_CALLS} calls of the plain package some give other bits"
            failures[at] = _FailedError(Outcome.UNSTEADY, words, failure.operators)


def _said(outcome: Outcome, do: Callable[[], Any]) -> Any:
    """What a step returns.

    Raises:
        _FailedError: it raised an exception.
    """
    try:
        with torch.no_grad():
            return do()
    except Exception as error:  # torch raises of any type, and its words are what counts
        raise _FailedError(outcome, said(error)) from error


def said(error: BaseException) -> str:
    """The type and the first line of an exception."""
    return f"{type(error).__name__}: {wording.first_line(str(error))}"


def _compiled(program: Program, path: Path) -> Any:
    torch._inductor.aoti_compile_and_package(program.exported, package_path=str(path))
    return torch._inductor.aoti_load_package(str(path))


def _called(model: Any, program: Program) -> list[Tensor]:
    torch.manual_seed(0)
    return [leaf for leaf in pytree.tree_leaves(model(*program.fresh_inputs())) if isinstance(leaf, Tensor)]


def _other_bits(program: Program, expected: Sequence[Tensor], actual: Sequence[Tensor]) -> frozenset[str]:
    """The operators whose outputs are not the same bit for bit."""
    if not len(expected) == len(actual) == len(program.outputs):
        return frozenset(program.outputs)
    pairs = zip(program.outputs, expected, actual, strict=True)
    return frozenset(name for name, one, other in pairs if not is_same(one, other))


def is_same(one: Tensor, other: Tensor) -> bool:
    """True if two tensors have the same dtype, layout, shape and bytes; strides do not count."""
    if (one.dtype, one.layout, one.shape) != (other.dtype, other.layout, other.shape):
        return False
    left, right = (
        t.detach().to_dense().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8)
        for t in (one, other)
    )
    return bool(torch.equal(left, right))


def _said_by(comparison: Comparison) -> str:
    """What a comparison that is not clean says first."""
    if (wrong := comparison.first_wrong) is not None:
        return f"{wrong.launch.id} {wrong.launch.kernel}: {', '.join(suspect.operator for suspect in wrong.suspects)}"
    said = [state_text(state) for state in comparison.wrong_states]
    said += [output_text(error) for error in (*comparison.faulty_outputs, *comparison.differing_outputs)]
    said += [] if comparison.refusal is None else [comparison.refusal.error]
    return said[0] if said else compared_text(comparison)


def _not_clean(program: Program, comparison: Comparison) -> frozenset[str]:
    """The operators that a comparison is not clean of; empty where that is not known."""
    bad = [row.launch for row in comparison.rows if row.verdict in BAD or row.leaves_open]
    names = {name for launch in bad for name in _operators_of(program.outputs, launch)}
    outputs = (*comparison.differing_outputs, *comparison.faulty_outputs, *comparison.wrong_outputs)
    return frozenset(names | {program.outputs[error.index] for error in outputs})


def _operators_of(outputs: Sequence[str], launch: Launch) -> list[str]:
    """The operators that a launch computes."""
    ordered = list(dict.fromkeys(outputs))
    paths = [module.split(".") for module in launch.site.provenance.modules]
    return [ordered[int(path[1])] for path in paths if len(path) > 1 and path[0] == "operators" and path[1].isdigit()]


def _replay(
    operators: Sequence[Operator],
    comparison: Comparison,
    folder: Path,
    failures: list[_FailedError],
    texts: dict[str, list[str]],
) -> None:
    """Writes the repro of a launch of each operator and runs their scripts."""
    ordered = [operator.name for operator in operators]
    of_operator: dict[str, list[Launch]] = {name: [] for name in ordered}
    for row in comparison.rows:
        for name in _operators_of(ordered, row.launch):
            of_operator[name].append(row.launch)
    without = [name for name, launches in of_operator.items() if not launches]
    if len(without) == 1:  # what is in the body of a branch or loop does not name the module around it
        launches = [row.launch for row in comparison.rows if not _operators_of(ordered, row.launch)]
        of_operator[without[0]] += [launch for launch in launches if launch.site.subgraph or len(operators) == 1]
    run, refusals = DiagnosedRun(comparison.run), dict[str, str]()
    written: dict[str, list[str]] = {}
    for name, launches in of_operator.items():
        texts[name].append(wording.pluralize(len(launches), "launch"))
        for launch in reversed(launches):
            try:
                if launch.id not in written:
                    write_repro(ReproOptions(launch.kernel, run, launch.id, output=folder / launch.id))
            except UsageError as error:  # a launch of a kind that cannot be replayed, which is said
                refusals.setdefault(name, f"{NO_REPRO}: {wording.first_line(str(error))}")
            except AotiDebugError as error:
                failures.append(_FailedError(Outcome.REPLAYED, f"no repro: {error}", frozenset({name})))
            else:
                written.setdefault(launch.id, []).append(name)
                break
        else:
            texts[name].append(refusals.get(name, "no launch of its own"))
    for replayed in replay_many([(folder / id_, ()) for id_ in written]):
        names = written[replayed.name]
        if replayed.code == 0 and any(line.endswith(_HOLDS) for line in replayed.said.splitlines()):  # after warnings
            for name in names:
                texts[name].append(replayed.name + REPLAYED)
        else:
            end = " ".join(replayed.said.strip().splitlines()[-3:])
            words = f"launch {replayed.name}: exit code {replayed.code}: {end}"
            failures.append(_FailedError(Outcome.REPLAYED, words, frozenset(names)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="+", metavar="OPERATOR")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--dynamic", action="store_true", help="sizes are symbols")
    parser.add_argument("--samples", type=int, metavar="N", default=2, help="of each operator")
    options = parser.parse_args()
    operator_samples.stand_in()
    warnings.simplefilter("ignore")
    target = Target(options.device, options.dtype, options.dynamic, options.samples)
    work = options.work.resolve()
    os.chdir(work)
    exported, drawing = list[Operator](), list[Operator]()
    for name in options.operators:
        if name in UNDEFINED:
            _print(Result(name, Outcome.UNSTEADY, "it returns memory that nothing has written"))
            continue
        try:
            operator = operator_samples.operator(name, target)
            program = operator_samples.export([operator], target)
            if not program.outputs:
                raise NoSamplesError("it returns no tensor")
            torch.export.save(program.exported, io.BytesIO())
            (drawing if draws_numbers(program.exported) else exported).append(operator)
        except NoSamplesError as error:
            _print(Result(name, Outcome.NO_EXPORT, str(error)))
        except Exception as error:  # noqa: BLE001  # torch raises of any type, and its words are what counts
            _print(Result(name, Outcome.NO_EXPORT, said(error)))
    for part in filter(None, (exported, drawing)):
        for result in results(part, target, work):
            _print(result)
    return 0


def _print(result: Result) -> None:
    print(json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
