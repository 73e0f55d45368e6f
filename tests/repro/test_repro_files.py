"""`--single-file`: one script that carries everything and runs in an empty directory."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Form, Kind, Role
from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.generate_texts import generate, kind_of
from aoti_debug.repro.recorded_launch import RecordedLaunch
from aoti_debug.repro.repro_files import (
    LIMIT,
    check_free,
    default_path,
    modules_of,
    single_file,
    tensor_files,
    write_file,
)
from tests.operator_schemas import registered
from tests.repro.repro_launches import ADD_ONE, LaunchBuilder, cpp_repro, manifest, run_script, write


def copy(saved: Path) -> RecordedLaunch:
    saved.mkdir(exist_ok=True)
    launch = LaunchBuilder(saved, "aoti_torch_copy_", Kind.SHIM_INPLACE, "aten.copy_.default")
    launch.tensor("buf0", torch.zeros(2), Role.INOUT, after=torch.ones(2)).tensor("arg0_1", torch.ones(2))
    return launch.number("non_blocking", 0).build()


def test_what_a_folder_holds(tmp_path: Path) -> None:
    folder = write(copy(tmp_path / "run"), tmp_path / "deep" / "repro")
    found = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert {"replay/__init__.py", "replay/process.py", "replay/memory.py"} < set(found)
    assert [name for name in found if not name.startswith("replay/")] == [
        "README",
        "repro.py",
        "tensors/after_buf0.safetensors",
        "tensors/before_arg0_1.safetensors",
        "tensors/before_buf0.safetensors",
    ]
    assert [p.name for p in folder.parent.iterdir()] == ["repro"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "repro").mkdir()
    with pytest.raises(UsageError, match="already exists") as caught:
        write(copy(tmp_path / "run"), tmp_path / "repro")
    assert "-o" in caught.value.hint


def test_an_earlier_repro_is_replaced_if_that_is_asked_for(tmp_path: Path) -> None:
    folder = write(copy(tmp_path / "run"), tmp_path / "out" / "repro")
    (folder / "note").touch()
    write(copy(tmp_path / "run"), folder, force=True)
    assert not (folder / "note").exists()
    assert (folder / "repro.py").is_file()
    assert [path.name for path in folder.parent.iterdir()] == ["repro"]


@pytest.mark.parametrize("what", ["folder", "script", "link", "file", "checkout"])
def test_what_is_no_repro_is_never_replaced(tmp_path: Path, what: str) -> None:
    shutil.copytree(Path(__file__).parents[2] / "repro", tmp_path / "checkout")  # a fresh clone has a folder "repro"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/repro.py").write_text("print()")
    (tmp_path / "file").touch()
    (tmp_path / "script").write_text("import torch")
    (tmp_path / "link").symlink_to(write(copy(tmp_path / "run"), tmp_path / "repro"))
    with pytest.raises(UsageError, match="is no repro: --force does not replace it") as caught:
        check_free(tmp_path / what, force=True)
    assert "--force" not in caught.value.hint
    with pytest.raises(UsageError, match="already exists") as caught:
        check_free(tmp_path / what)
    assert "--force" not in caught.value.hint


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    launch = copy(tmp_path / "run")
    assert launch.slots[0].before is not None
    launch.slots[0].before.unlink()
    with pytest.raises(RunDirError, match=r"0\.before is gone"):
        write(launch, tmp_path / "out" / "repro")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write .*file/repro"):
        write(copy(tmp_path / "run"), tmp_path / "file" / "repro")


def test_names_of_folders_are_legal(tmp_path: Path) -> None:
    launch = copy(tmp_path)
    assert default_path(launch) == ResultKind.REPROS.place() / "repro_aoti_torch_copy__0.3"
    odd = replace(launch, site=replace(launch.site, kernel="my::op/" + "x" * 300))
    assert default_path(odd).name.startswith("repro_my__op_xxx")
    assert len(default_path(odd).name) < 200


@pytest.mark.parametrize("kind", [kind for kind in Kind if not traits_of(kind).replay], ids=lambda k: k.value)
def test_other_kinds_are_refused_with_what_is_missing(tmp_path: Path, kind: Kind) -> None:
    launch = copy(tmp_path)
    with pytest.raises(UsageError, match=r"cannot be replayed alone: \w+.* \w+") as caught:
        kind_of(replace(launch, site=replace(launch.site, kind=kind)), manifest())
    assert caught.value.hint == "aoti-debug show 0.3 shows what was recorded of it"


def test_a_kernel_without_source_is_refused(tmp_path: Path) -> None:
    launch = LaunchBuilder(tmp_path, "cpp_fused_0", Kind.CPP).tensor("a", torch.zeros(1), form=Form.POINTER).build()
    with pytest.raises(UsageError, match="does not hold the source of cpp_fused_0"):
        kind_of(launch, manifest())


def test_modules_that_travel_import_nothing_of_ours() -> None:
    import ast

    from aoti_debug.repro.repro_files import TEMPLATES

    imported = set()
    for path in TEMPLATES.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).split(".")[0])
    import sys

    assert imported - set(sys.stdlib_module_names) <= {"torch", "safetensors", "numpy", "triton"}
    assert not any(name.startswith("aoti_debug") for name in imported)


def test_a_script_has_the_modules_that_it_needs() -> None:
    plain = set(modules_of("from replay import main\n"))
    assert {"__init__.py", "process.py", "kernel.py", "compare.py"} <= plain
    assert not {name for name in plain if name.startswith(("triton", "interpreter"))}
    everything = set(modules_of("from replay.triton_kernel import TritonKernel\n"))
    assert plain | {"triton_kernel.py", "interpreter.py"} <= everything


def test_results_are_not_arguments_of_the_folder(tmp_path: Path) -> None:
    launch = LaunchBuilder(tmp_path, "aoti_torch_clone", Kind.CLONE, "aten.clone.default")
    built = launch.tensor("kv", torch.zeros(2)).result("buf1", torch.zeros(2)).build()
    folder = write(built, tmp_path / "repro")
    names = sorted(p.name for p in (folder / "tensors").iterdir())
    assert names == ["after_buf1.safetensors", "before_kv.safetensors"]
    assert [r.name for r in arguments_of(built).results] == ["buf1"]


def addmm(saved: Path, n: int = 4) -> tuple[dict[str, str | bytes], dict[str, Path]]:
    launch = LaunchBuilder(saved, "aoti_torch_cpu_mm_out", Kind.SHIM_OUT, "aten.mm.out")
    left, right = torch.randn(n, n), torch.randn(n, n)
    launch.tensor("buf0", torch.zeros(n, n), Role.OUT, after=left @ right).tensor("a", left).tensor("b", right)
    built = launch.build()
    arguments = arguments_of(built)
    return generate(built, manifest(operators=registered("aten.mm.out")), arguments), tensor_files(arguments)


def run(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_script(Path(script.name), *options, directory=script.parent)


def test_it_runs_alone_in_an_empty_directory(tmp_path: Path) -> None:
    contents, tensors = addmm(tmp_path)
    script = tmp_path / "empty" / "repro_mm.py"
    write_file(script, single_file(contents, tensors, LIMIT))
    assert [p.name for p in script.parent.iterdir()] == ["repro_mm.py"]
    done = run(script)
    assert done.stdout == "0.3 aoti_torch_cpu_mm_out: as recorded\n  buf0  float32 (4, 4)  equal bit for bit\n", done
    assert sorted(p.name for p in script.parent.iterdir()) == ["repro_mm.py", "repro_mm.unpacked"]
    assert run(script, "--repeat", "2").returncode == 0


def test_a_file_that_was_exchanged_unpacks_itself_again(tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    for n in (4, 5):
        contents, tensors = addmm(tmp_path, n)
        script.write_text(single_file(contents, tensors, LIMIT))
        done = run(script)
        assert f"buf0  float32 ({n}, {n})  equal bit for bit" in done.stdout, done


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    import os

    if os.getuid() == 0:
        pytest.skip("root may write anywhere")
    contents, tensors = addmm(tmp_path)
    script = tmp_path / "closed" / "repro.py"
    write_file(script, single_file(contents, tensors, LIMIT))
    script.parent.chmod(0o555)
    assert run(script).returncode == 0


def test_what_is_read_and_edited_comes_first(tmp_path: Path) -> None:
    contents, tensors = addmm(tmp_path)
    text = single_file(contents, tensors, LIMIT)
    assert (
        text.index("ARGUMENTS = [")
        < text.index("def launch(")
        < text.index("\n# The modules and tensors of this repro")
    )
    assert "\n# needs torch, safetensors, numpy; aoti-debug is not needed.\n# Its modules" in text
    assert max(map(len, text.splitlines())) <= 130
    assert text == single_file(contents, tensors, LIMIT)


@pytest.mark.parametrize(("n", "limit", "said"), [(1024, LIMIT, r"1\.0 MiB"), (4, 1000, "1000 B")])
def test_too_large_for_one_file(tmp_path: Path, n: int, limit: int, said: str) -> None:
    contents, tensors = addmm(tmp_path, n)
    with pytest.raises(UsageError, match=f"would carry more than {said} of compressed tensors") as caught:
        single_file(contents, tensors, limit)
    assert caught.value.hint == "leave --single-file out, or allow more with --max-size"


def test_a_kernel_in_one_file(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, ADD_ONE)
    contents: dict[str, str | bytes] = {"repro.py": (folder / "repro.py").read_text()}
    script = tmp_path / "one" / "kernel.py"
    write_file(script, single_file(contents, {p.name: p for p in (folder / "tensors").iterdir()}, LIMIT))
    assert run(script).stdout.endswith("equal bit for bit\n")
    assert len(list((tmp_path / "one/kernel.unpacked/build").glob("*.so"))) == 1
