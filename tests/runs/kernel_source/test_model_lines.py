from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.package.manifest import Certainty, ModelLine, Provenance
from aoti_debug.runs.kernel_source.model_lines import (
    access_line,
    indices,
    kernel_name_line,
    operation_line,
)
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import open_run
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor


def launch_of(base: Path, *texts: str) -> Launch:
    """A launch whose kernel was fused from these lines, numbered from 1."""
    frames = tuple(ModelLine("m.py", number, "forward", text) for number, text in enumerate(texts, 1))
    fused = replace(site("k", arg("x")), provenance=Provenance(Certainty.EXACT, source=frames))
    writer = JournalWriter()
    writer.launch(0, 0, tensor(4))
    return open_run(run_directory(base, make_manifest(fused), writer)).launches[0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rows = self.table[index * 2] + x", ("index",)),
        ("out[idx, :] = values", ("idx",)),
        ("return self.table[index + (i // 7) * FAR]", ("index", "i", "FAR")),
        ("y = torch.gather(x, 1, ids)", ("x", "ids")),
        ("h = F.embedding(ids, self.weight)", ("ids",)),
        ("y = x[0] + x[:, 1:]", ()),
        ("y = x.relu()", ()),
    ],
)
def test_names_used_as_indices(text: str, names: tuple[str, ...]) -> None:
    assert indices(text) == names


def test_the_line_that_reads_by_an_index(tmp_path: Path) -> None:
    launch = launch_of(tmp_path, "scale = x.sum()", "index = ids.amax(-1)", "return self.table[index] * scale")
    access = access_line(launch)
    assert access is not None
    assert access.line == 3


def test_the_first_line_if_none_has_an_index(tmp_path: Path) -> None:
    launch = launch_of(tmp_path, "y = x.relu()", "z = y + 1")
    access = access_line(launch)
    assert access is not None
    assert access.line == 1


@pytest.mark.parametrize(
    ("operation", "line"),
    [
        ("div", 1),
        ("mul", 2),
        ("log", 3),
        ("softmax", 4),
        ("sqrt", 6),
        ("exp", 4),
    ],
)
def test_the_line_that_contains_an_operation(tmp_path: Path, operation: str, line: int) -> None:
    fused = launch_of(
        tmp_path,
        "q = x / divisor",
        "return self.scale * q",
        "y = torch.log(q)",
        "if torch.softmax(y, -1).sum() > 0:",
        "z = y + 1",
        "n = torch.linalg.vector_norm(z, dim=-1)",
    )
    frame = operation_line(fused, operation)
    assert frame is not None
    assert frame.line == line


def test_two_lines_with_the_operation_are_ambiguous(tmp_path: Path) -> None:
    assert operation_line(launch_of(tmp_path, "a = x / y", "b = x / z"), "div") is None


def test_no_line_contains_the_operation(tmp_path: Path) -> None:
    assert operation_line(launch_of(tmp_path, "a = x / y", ""), "log") is None


def test_the_most_likely_operation_in_a_kernel_name(tmp_path: Path) -> None:
    """Its name says what was fused, and not which of it made NaN."""
    launch = launch_of(tmp_path, "return self.linear(x / spread)", "spread = x.std(0)")
    named = copy.copy(launch)
    named.site = replace(launch.site, kernel="triton_red_fused_div_std_0")
    frame = kernel_name_line(named)
    assert frame is not None
    assert frame.line == 2
    assert kernel_name_line(launch) is None
