"""`--single-file`: one script that carries everything and runs in an empty directory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import UsageError
from aoti_debug.package.manifest import Kind, Role
from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.folder import tensor_files, write_file
from aoti_debug.repro.generate_texts import generate
from aoti_debug.repro.single_file import LIMIT, single_file
from tests.operator_schemas import registered
from tests.repro.repro_launches import ADD_ONE, LaunchBuilder, cpp_repro, manifest, run_script


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
