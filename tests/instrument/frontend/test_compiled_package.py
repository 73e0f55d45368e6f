"""Compiled packages of one small model, instrumented: what they are, what they compute, where their weights lie.

They were compiled by another process, whose caches are gone, in another directory.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.package import load_package
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch.export.pt2_archive._package import load_pt2

from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder import write_package
from aoti_debug.instrument.builder.build import BuildOptions, BuildSummary
from aoti_debug.instrument.wrapper import model_variables
from aoti_debug.package.inputs import input_files as inputs
from aoti_debug.package.manifest import Certainty, PackageOrigin
from aoti_debug.package.pt2 import archive as pt2_archive
from aoti_debug.package.pt2 import program_weights
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.package.weights_file import PackedWeights
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from tests import artifact_metadata, compile_packages, forked_script, machine_results
from tests.built_model import Built
from tests.compile_packages import INPUT
from tests.once import once

pytestmark = pytest.mark.slow
KERNELS = 2  # one of them is that of the constants


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory, built: Callable[[str], Built]) -> Path:
    """The folder of the packages: moved away from where they were compiled, and the compiler's caches deleted."""
    built("mixed")  # the first build of the session finds out what the machine can do
    return once(tmp_path_factory, "packages", compiled_elsewhere)


def compiled_elsewhere(folder: Path) -> Path:
    there = folder / "there"
    (there / "packages").mkdir(parents=True)
    machine_results.link_into(there / "cache")
    for known in Path(cache_dir()).glob("??/*"):  # what torch has found out about this machine
        (there / "cache" / known.parent.name).mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # another process is about to write it, or it lies on another disk
            os.link(known, there / "cache" / known.parent.name / known.name)
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(there / "cache")}
    forked_script.run(Path(compile_packages.__file__), there / "packages", variables=variables)
    shutil.move(there / "packages", folder / "packages")
    shutil.rmtree(there)
    return folder / "packages"


@pytest.fixture(scope="module")
def instrumented(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., BuildSummary]:
    """Instruments one of the packages, once."""
    folder = tmp_path_factory.mktemp("instrumented")

    @functools.cache
    def build(name: str, model: str = "") -> BuildSummary:
        output = folder / f"{name}.{model}.instrumented.pt2"
        return builder.build_report(BuildOptions(program=packages / f"{name}.pt2", output=output, model=model))

    return build


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOTI_DEBUG_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("AOTI_DEBUG_PRINT", "none")


def outputs(model: Any) -> list[torch.Tensor]:
    """Of two calls: the first changes the model's buffer."""
    results = [model(INPUT) for _ in range(2)]
    return [value.clone() if isinstance(value, torch.Tensor) else value[0].clone() for value in results]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def files(package: Path) -> dict[str, str]:
    """Name and CRC of every member by its name below the root."""
    with zipfile.ZipFile(package) as archive:
        return {info.filename.partition("/")[2]: f"{info.CRC:x}" for info in archive.infolist()}


@pytest.mark.parametrize("name", ["plain", "mapped", "blob", "cpp_weights"])
def test_equal_outputs_wherever_the_weights_lie(
    packages: Path, instrumented: Callable[..., BuildSummary], name: str
) -> None:
    summary = instrumented(name)
    assert summary.manifest.source is PackageOrigin.COMPILED
    assert str(summary.manifest.sameness) == f"{KERNELS} of {KERNELS} kernels identical to the original"
    original = outputs(load_package(str(packages / f"{name}.pt2")))
    assert equal(outputs(load_package(str(summary.package))), original)
    assert not torch.equal(original[0], original[1])
    packages_of = (packages / f"{name}.pt2", summary.package)
    before, after = (load_package(str(path)).get_metadata() for path in packages_of)
    assert before == after


@pytest.mark.parametrize("name", ["plain", "mapped", "blob", "cpp_weights", "pickled", "sources"])
def test_where_its_weights_lie(packages: Path, instrumented: Callable[..., BuildSummary], name: str) -> None:
    summary, weight = instrumented(name), compile_packages.Model(0).linear.weight.detach()
    of = replace(summary.manifest, packed=packed_weights(pt2_archive.inspect(summary.package)))
    for path in [summary.package, *([] if name == "sources" else [packages / f"{name}.pt2"])]:
        stored = program_weights.packed_weights(pt2_archive.inspect(path), of)["linear_weight"]
        assert (stored.dtype, stored.shape, stored.nbytes) == ("float32", (8, 4), weight.nbytes)
        assert torch.equal(program_weights.mapped(path, stored), weight)


def packed_weights(package: Artifact) -> PackedWeights:
    """What the manifest would have if the weights were large."""
    (wrapper,) = (package.read(name).decode() for name in package.members if name.endswith(".cpp"))
    return model_variables.packed_weights(wrapper, {"linear_weight": 8 * 4 * 4})


def test_weights_that_lie_in_the_archive_stay_there(
    packages: Path, instrumented: Callable[..., BuildSummary], tmp_path: Path
) -> None:
    package = instrumented("pickled").package
    loaded = [
        load_pt2(str(path), load_weights_from_disk=True).aoti_runners["model"]
        for path in (packages / "pickled.pt2", package)
    ]
    assert equal(outputs(loaded[1]), outputs(loaded[0]))
    result = runner.run(RunOptions(package, random_inputs=1, out=tmp_path / "runs"))
    assert result.verdict is None


def test_weights_that_the_host_gives(packages: Path, instrumented: Callable[..., BuildSummary], tmp_path: Path) -> None:
    summary = instrumented("given")
    assert summary.manifest.without_weights == "it was compiled to be given its weights after it is loaded"
    results = []
    for path in (packages / "given.pt2", summary.package):
        model = load_package(str(path))
        state = compile_packages.Model(0).state_dict()
        weights = {name: state[name].clone() for name in model.get_constant_fqns()}
        model.load_constants(weights, check_full_update=True, user_managed=True)
        results.append(outputs(model))
    assert equal(*results)
    with pytest.raises(ArtifactError, match="has no weights: it was compiled to be given"):
        runner.run(RunOptions(summary.package, random_inputs=1, out=tmp_path / "runs"))


def test_the_new_package_is_the_old_one_with_another_library(
    packages: Path, instrumented: Callable[..., BuildSummary]
) -> None:
    before, after = files(packages / "plain.pt2"), files(instrumented("plain").package)
    (library,) = (name for name in before if name.endswith(".wrapper.so"))
    (original,) = (name for name in after if name.endswith(".original"))
    assert after[original] == before[library]
    assert after[library] != before[library]
    assert [name for name in after if name.endswith(".so")] == [library]
    kept = {name: crc for name, crc in before.items() if not name.endswith((".cpp", ".wrapper.so"))}
    assert kept.items() <= after.items()


def test_mapped_weights_are_kept_once(packages: Path, instrumented: Callable[..., BuildSummary]) -> None:
    for member in (".original", ".wrapper.so"):
        with zipfile.ZipFile(instrumented("mapped").package) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(member))
            tail = archive.read(name)[-16:]
        with zipfile.ZipFile(packages / "mapped.pt2") as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".so"))
            assert (archive.read(name)[-16:] == tail) == (member == ".wrapper.so")


def test_mapped_weights_stay_in_the_package_until_they_are_copied(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    write = write_package.write_instrumented

    def watched(*arguments: Any) -> None:
        directory = arguments[1].sources.directory
        sizes.append(sum(path.stat().st_size for path in directory.iterdir()))
        write(*arguments)

    monkeypatch.setattr(write_package, "write_instrumented", watched)
    stored = packages / "mapped.pt2"
    compressed = tmp_path / "compressed.pt2"
    with zipfile.ZipFile(stored) as source, zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as target:
        for info in source.infolist():
            target.writestr(info.filename, source.read(info))
    for package in (stored, compressed):
        built = builder.build(package, output=tmp_path / f"{package.stem}.instrumented.pt2")
        assert equal(outputs(load_package(str(built))), outputs(load_package(str(stored))))
    with zipfile.ZipFile(stored) as archive:
        assert sizes[0] < sum(info.file_size for info in archive.infolist()) < sizes[1]


def test_a_package_loaded_twice_keeps_its_buffers_apart(instrumented: Callable[..., BuildSummary]) -> None:
    one, other = (load_package(str(instrumented("plain").package)) for _ in range(2))
    assert equal(outputs(one), outputs(other))


def test_one_model_of_several(packages: Path, instrumented: Callable[..., BuildSummary], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds 2 models") as caught:
        builder.build_report(BuildOptions(program=packages / "two.pt2", output=tmp_path / "x.pt2"))
    assert caught.value.hint == "name one with --model: first, second"
    with pytest.raises(UsageError, match="holds no model 'third'"):
        builder.build_report(BuildOptions(program=packages / "two.pt2", output=tmp_path / "x.pt2", model="third"))
    before, after = files(packages / "two.pt2"), files(instrumented("two", "second").package)
    others = {name: crc for name, crc in before.items() if "/second/" not in name}
    assert others.items() <= after.items()
    result = runner.run(RunOptions(instrumented("two", "second").package, random_inputs=1, out=tmp_path / "runs"))
    assert (result.verdict, result.run.manifest.model) == (None, "second")
    assert len(result.run.launches) == 3


def test_equal_code_and_other_weights_in_one_process(packages: Path, instrumented: Callable[..., BuildSummary]) -> None:
    names = ("first", "second")
    packaged = {name: str(instrumented("two", name).package) for name in names}
    loaded = {name: load_package(packaged[name], name) for name in names}  # both are there before one is called
    results = {name: outputs(loaded[name]) for name in names}
    plain = {name: outputs(load_package(str(packages / "two.pt2"), name)) for name in names}
    assert {name: equal(results[name], plain[name]) for name in names} == dict.fromkeys(names, True)
    assert not equal(results["first"], results["second"])
    wrappers = {
        name: pt2_archive.inspect(packages / "two.pt2").read(member)
        for name in names
        for member in pt2_archive.inspect(packages / "two.pt2").members
        if f"/{name}/" in member and member.endswith(".wrapper.cpp")
    }
    texts = {text.partition(b"// Compile cmd")[0] for text in wrappers.values()}
    arrays = re.compile(rb"^.*\bint_array_\d+.*\n", re.MULTILINE)  # torch 2.11 shares fewer of them in a second model
    assert len({arrays.sub(b"", text) for text in texts}) == 1  # else the test shows nothing


def test_runners_and_weights_after_loading(packages: Path, instrumented: Callable[..., BuildSummary]) -> None:
    results = []
    for path in (packages / "plain.pt2", instrumented("plain").package):
        model = load_package(str(path), num_runners=2)
        first = outputs(model)
        other = compile_packages.Model(9).state_dict()
        weights = {name: other[name].clone() for name in model.get_constant_fqns()}
        model.load_constants(weights, check_full_update=True)
        second = outputs(model)
        doubled = {name.replace(".", "_"): value * 2 for name, value in weights.items()}
        model.loader.update_constant_buffer(doubled, False, False, False)
        results.append([*first, *second, *outputs(model)])
    assert equal(*results)
    assert not torch.equal(results[0][0], results[0][2])
    assert not torch.equal(results[0][2], results[0][4])


def test_sources_are_compiled_here(packages: Path, instrumented: Callable[..., BuildSummary]) -> None:
    summary = instrumented("sources")
    assert summary.manifest.source is PackageOrigin.UNCOMPILED
    assert summary.manifest.sameness is None
    assert equal(outputs(load_package(str(summary.package))), outputs(load_package(str(packages / "plain.pt2"))))


def test_a_package_for_another_machine(packages: Path, tmp_path: Path) -> None:
    for changes, message in (
        ({"AOTI_MACHINE": "s390x"}, r"was compiled for s390x; this machine is"),
        ({"AOTI_PLATFORM": "windows"}, r"was compiled for windows; this machine runs Linux"),
    ):
        other = artifact_metadata.edited(packages / "plain.pt2", tmp_path / "other.pt2", changes)
        with pytest.raises(ArtifactError, match=message):
            builder.build_report(BuildOptions(program=other, output=tmp_path / "x.pt2"))
    assert not (tmp_path / "x.pt2").exists()


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ((".so",), "holds neither its library nor how to compile it"),
        (("_metadata.json",), "wrapper_metadata.json of the"),
    ],
)
def test_a_package_that_is_not_whole(packages: Path, tmp_path: Path, left_out: tuple[str, ...], message: str) -> None:
    with zipfile.ZipFile(packages / "plain.pt2") as source, zipfile.ZipFile(tmp_path / "m.pt2", "w") as target:
        for info in source.infolist():
            if not info.filename.endswith(left_out):
                target.writestr(info, source.read(info))
    with pytest.raises(ArtifactError, match=message):
        builder.build_report(BuildOptions(program=tmp_path / "m.pt2", output=tmp_path / "o.pt2"))


def test_text_that_is_no_utf_8(packages: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(packages / "plain.pt2") as source, zipfile.ZipFile(tmp_path / "m.pt2", "w") as target:
        for info in source.infolist():
            comment = b"// caf\xe9\n" if info.filename.endswith(".cpp") else b""
            target.writestr(info, comment + source.read(info))
    summary = builder.build_report(BuildOptions(program=tmp_path / "m.pt2", output=tmp_path / "o.pt2"))
    assert str(summary.manifest.sameness) == f"{KERNELS} of {KERNELS} kernels identical to the original"


def test_model_lines_and_inputs_come_from_the_exported_program(packages: Path, tmp_path: Path) -> None:
    summary = builder.build_report(
        BuildOptions(program=packages / "plain.pt2", output=tmp_path / "x.pt2", exported=packages / "program.pt2")
    )
    sites = summary.manifest.sites
    assert summary.joined_sites == sum(bool(site.provenance.source) for site in sites) >= 2
    assert {site.provenance.certainty for site in sites if site.provenance.source} == {Certainty.INFERRED}
    assert {Path(frame.file).name for site in sites for frame in site.provenance.source} == {"compile_packages.py"}
    assert summary.missing_inputs_reason == ""
    run = runner.run(RunOptions(summary.package, out=tmp_path / "runs")).run
    assert [launch.site for launch in run.launches] == list(sites)


def test_a_fresh_build_has_the_kernels_of_the_package(packages: Path, tmp_path: Path) -> None:
    options = BuildOptions(program=packages / "program.pt2", output=tmp_path / "x.pt2", against=packages / "plain.pt2")
    compared = builder.build_report(options).comparison
    assert compared is not None
    assert str(compared) == f"{KERNELS} of {KERNELS} kernels identical to those of plain.pt2"
    assert compared.missing == ()


def test_inputs_are_wanted_and_can_be_made(
    packages: Path, instrumented: Callable[..., BuildSummary], tmp_path: Path
) -> None:
    summary = instrumented("plain")
    assert summary.missing_inputs_reason == "a compiled package holds none"
    (leaf,) = summary.signature.leaves
    assert str(leaf) == "float32[2, 4] on cpu"
    with pytest.raises(ArtifactError, match="has no inputs in it") as caught:
        runner.run(RunOptions(summary.package, out=tmp_path / "runs"))
    assert "\n  input 0 float32[2, 4] on cpu" in caught.value.hint
    embedded = builder.build_report(
        BuildOptions(program=packages / "plain.pt2", output=tmp_path / "e.pt2", random_inputs=5)
    )
    assert embedded.missing_inputs_reason == ""
    made = inputs.read_embedded(pt2_archive.inspect(embedded.package))
    run = runner.run(RunOptions(summary.package, random_inputs=5, out=tmp_path / "runs")).run
    assert made is not None
    assert run.inputs is not None
    again = torch.load(run.inputs)
    assert torch.equal(made.args[0], again["args"][0])
