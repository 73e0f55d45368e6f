"""The results of comparing one model, unchanged or with a wrong kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """The result of comparing a package with a wrong kernel.

    Attributes:
        launch: the first wrong launch is the first one that the edit changed.
        operator: one of the operators named is the right one; of an edit that belongs to none, `launch`.
        first: the operator named first is the right one; likewise.
    """

    model: str
    kind: str
    mutation: str
    kernel: str
    launch: bool
    operator: bool
    first: bool
    suspects: int
    named: str
    expected: str
    seconds: float


@dataclass(frozen=True)
class HeldOut:
    """The result of comparing a package with a random edit of a kernel.

    Attributes:
        edit: what was replaced by what.
        found: the first wrong launch is the first one whose outputs have another bit than the right package's.
        size: the largest change of an element of that output, in ULP; of integers, by how much.
        excess: the largest error of that launch, as a multiple of what rounding may explain; -1 if it was not compared.
    """

    model: str
    kind: str
    edit: str
    kernel: str
    found: bool
    named: str
    expected: str
    size: float
    excess: float


@dataclass(frozen=True)
class Clean:
    """The result of comparing an ordinary model.

    Attributes:
        coverage, independent: of the bytes of outputs, those compared, and those compared with other code.
        wrong: launches, states and outputs that were called wrong.
        differing: the outputs that differ from eager's by more than rounding.
        reasons: what limits the comparison, and outputs that differ without being called wrong.
        run_seconds, eager_seconds, compare_seconds: a run at level 1, one call in eager, the comparison of the run.
        peak: bytes of memory of the evaluating process.
    """

    model: str
    launches: int
    compared: int
    coverage: float
    independent: float
    wrong: tuple[str, ...]
    differing: tuple[int, ...]
    reasons: tuple[str, ...]
    run_seconds: float
    eager_seconds: float
    compare_seconds: float
    peak: int
