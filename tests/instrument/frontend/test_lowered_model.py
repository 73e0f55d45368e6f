from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.frontend import sources
from aoti_debug.instrument.frontend.lowered_model import (
    EmbeddedInputs,
    LoweredModel,
    choose_inputs,
    embedded_inputs,
    may_be_compiled_from,
    sizes_overlap,
    with_input_names,
)
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature, to_json
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.package.pt2 import archive
from tests import archives
from tests.unpacked_archive import unpacked


def test_inputs_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / messages.INPUTS).write_bytes(b"")
    inputs = embedded_inputs(tmp_path, Answer("2.13.0", (), {}, "O1", "", {}))
    assert inputs == EmbeddedInputs(tmp_path / messages.INPUTS, "")


def test_why_there_are_no_inputs(tmp_path: Path) -> None:
    inputs = embedded_inputs(tmp_path, Answer("2.13.0", (), {}, "O1", "a compiled package holds none", {}))
    assert inputs == EmbeddedInputs(None, "a compiled package holds none")


NUMBER = Leaf("n", constant="2")


def tensor(*sizes: int | Dim, dtype: str = "float32") -> Leaf:
    return Leaf(
        "x", f"torch.{dtype}", "cpu", tuple(size if isinstance(size, Dim) else Dim(size, size) for size in sizes)
    )


PROGRAM = ModelSignature((tensor(4, Dim(2, 9, "s0")), NUMBER, tensor(3, dtype="int64")))


@pytest.mark.parametrize(
    ("package", "possible"),
    [
        (ModelSignature((tensor(4, 5), tensor(3, dtype="int64")), others=1), True),
        (ModelSignature((tensor(8, 5), tensor(3, dtype="int64")), others=1), True),  # exported for another size
        (ModelSignature((tensor(4, 5), tensor(3, dtype="int64"))), False),
        (ModelSignature((tensor(4, 5), tensor(3, dtype="int32")), others=1), False),
        (ModelSignature((tensor(4, 5, 1), tensor(3, dtype="int64")), others=1), False),
        (ModelSignature((tensor(4, 5),), others=2), False),
        (ModelSignature((Leaf("x"), Leaf("y")), others=1), True),  # it does not describe its inputs
        (ModelSignature((Leaf("x"), tensor(3, dtype="int64")), others=1), True),
        (ModelSignature((Leaf("x"), tensor(3)), others=1), False),
    ],
)
def test_a_program_with_another_signature_is_recognised(package: ModelSignature, possible: bool) -> None:
    assert may_be_compiled_from(package, PROGRAM) is possible


@pytest.mark.parametrize(
    ("size", "fit"),
    [(Dim(4, 4), True), (Dim(9, 20), True), (Dim(10, -1), False), (Dim(0, -1), True), (Dim(1, 1), False)],
)
def test_example_inputs_fit_if_sizes_overlap(size: Dim, fit: bool) -> None:
    package = ModelSignature((tensor(4, size), tensor(3, dtype="int64")), others=1)
    assert sizes_overlap(package, PROGRAM) is fit


def test_undescribed_inputs_fit_any() -> None:
    package = ModelSignature((Leaf("x"), tensor(3, dtype="int64")), others=1)
    assert sizes_overlap(package, PROGRAM)
    assert not sizes_overlap(ModelSignature((Leaf("x"), tensor(4, dtype="int64")), others=1), PROGRAM)


NONE = EmbeddedInputs(None, "a compiled package holds none")
PACKAGE = ModelSignature((tensor(4, 5), tensor(3, dtype="int64")), others=1)


def lowered(folder: Path, signature: ModelSignature, inputs: EmbeddedInputs) -> LoweredModel:
    folder.mkdir()
    (folder / "signature.json").write_text(to_json(signature))
    return LoweredModel(
        sources=sources.read(unpacked(folder / "sources"), wrapper_opt="O1"),
        archive=archive.inspect(archives.write(folder / "m.pt2", archives.PACKAGE)),
        inputs=inputs,
        signature_file=folder / "signature.json",
        log=folder / "lower.log",
        answer=Answer("2.13.0", (), {}, "O1", "", {}),
        triton_configs={},
        model="model",
        source=PackageOrigin.COMPILED,
    )


OWN, EXAMPLES = EmbeddedInputs(Path("own.pt"), ""), EmbeddedInputs(Path("examples.pt"), "")
FORGOTTEN = EmbeddedInputs(None, "the program has no example inputs")


@pytest.mark.parametrize(
    ("signature", "own", "examples", "expected"),
    [
        (PACKAGE, NONE, EXAMPLES, EXAMPLES),
        (PACKAGE, OWN, EXAMPLES, OWN),
        (PACKAGE, NONE, FORGOTTEN, FORGOTTEN),
        (
            ModelSignature((tensor(8, 5), tensor(3, dtype="int64")), others=1),
            NONE,
            EXAMPLES,
            EmbeddedInputs(None, "those of program.pt2 do not fit"),
        ),
    ],
)
def test_inputs_of_a_package(
    tmp_path: Path, signature: ModelSignature, own: EmbeddedInputs, examples: EmbeddedInputs, expected: EmbeddedInputs
) -> None:
    package, program = lowered(tmp_path / "a", signature, own), lowered(tmp_path / "b", PROGRAM, examples)
    assert choose_inputs(package, program, Path("x/program.pt2")) == expected


def test_the_inputs_of_a_package_get_the_names_of_its_program(tmp_path: Path) -> None:
    unnamed = replace(PACKAGE, leaves=tuple(replace(leaf, name="") for leaf in PACKAGE.leaves))
    x, n, ids = PROGRAM.leaves
    program = lowered(tmp_path / "b", ModelSignature((x, n, replace(ids, name="ids"))), EXAMPLES)
    package = with_input_names(lowered(tmp_path / "a", unnamed, OWN), program)
    assert [leaf.name for leaf in package.signature.leaves] == ["x", "ids"]
    assert replace(package.signature, leaves=()) == replace(unnamed, leaves=())


def test_another_program_is_refused(tmp_path: Path) -> None:
    package = lowered(tmp_path / "a", ModelSignature((tensor(4),)), OWN)
    with pytest.raises(ArtifactError, match=r"m\.pt2 was not compiled from other\.pt2, which takes:"):
        choose_inputs(package, lowered(tmp_path / "b", PROGRAM, EXAMPLES), Path("other.pt2"))
