"""`--poison`: planted overruns and reads of what nothing has written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.package.manifest import Form, Kind, Role
from tests.repro.repro_launches import ADD_ONE, LaunchBuilder, cpp_repro, replay, write

TITLE = "0.3 cpp_fused_planted_0"


def test_a_kernel_that_does_nothing_wrong(tmp_path: Path) -> None:
    done = replay(cpp_repro(tmp_path, ADD_ONE), "--poison")
    assert done.stdout == (f"{TITLE}: no overrun within 64 KiB, and no output depends on uninitialised memory\n"), (
        done.stderr
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "out_ptr0[ks0 + 1] = 3;",
            "4 bytes were written past the end of buf0, up to 8 bytes past its storage: "
            "element 65 of buf0, 2 elements past its end (64 elements)",
        ),
        (
            "out_ptr0[-3] = 3;",
            "4 bytes were written before the beginning of buf0, up to 12 bytes before its storage: "
            "element -3 of buf0, 3 elements before its beginning (64 elements)",
        ),
        (
            "const_cast<float*>(in_ptr0)[ks0] = 1;",
            "4 bytes were written past the end of arg0_1, up to 4 bytes past its storage: "
            "element 64 of arg0_1, 1 element past its end (64 elements)",
        ),
    ],
)
def test_a_small_overrun_that_does_not_fault(tmp_path: Path, statement: str, said: str) -> None:
    folder = cpp_repro(tmp_path, f"{ADD_ONE} {statement}")
    assert replay(folder).returncode == 0
    done = replay(folder, "--poison")
    assert done.stdout == f"{TITLE}: OVERRUN: {said}\n", done.stderr
    assert done.returncode == 11


def test_a_read_of_what_nothing_has_written(tmp_path: Path) -> None:
    after = torch.arange(64.0) + 1
    after[5] += 7
    folder = cpp_repro(tmp_path, f"const float old = out_ptr0[5]; {ADD_ONE} out_ptr0[5] += old;", after=after)
    assert replay(folder).returncode == 0
    done = replay(folder, "--poison")
    assert f"{TITLE}: UNINITIALISED: 1 of 64 elements of buf0 depend on uninitialised memory: at (5,) nan" in (
        done.stdout
    )
    assert done.returncode == 10


def test_a_read_past_the_end_shows_in_the_output(tmp_path: Path) -> None:
    body = "for (int64_t i = 0; i < ks0; ++i) out_ptr0[i] = in_ptr0[i] + in_ptr0[i + 1];"
    done = replay(cpp_repro(tmp_path, body), "--poison")
    assert "UNINITIALISED: 1 of 64 elements of buf0 depend on uninitialised memory: at (63,)" in done.stdout
    assert done.returncode == 10


def test_elements_that_are_left_alone_are_no_fault(tmp_path: Path) -> None:
    done = replay(cpp_repro(tmp_path, "for (int64_t i = 0; i < 60; ++i) out_ptr0[i] = in_ptr0[i];"), "--poison")
    assert done.stdout.splitlines()[0] == "  buf0: 4 of 64 elements were not written"
    assert done.returncode == 0


def test_a_write_between_the_rows_of_an_argument(tmp_path: Path) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_zero_", Kind.SHIM_INPLACE, "aten.zero_.default")
    rows = torch.ones(4, 10)[:, :8]
    folder = write(launch.tensor("buf0", rows, Role.INOUT, after=rows * 0).build(), tmp_path / "repro")
    assert replay(folder, "--poison").returncode == 0
    script = folder / "repro.py"
    text = script.read_text()
    call = "torch.ops.aten.zero_.default(buf0)"
    assert call in text
    script.write_text(text.replace(call, "torch.ops.aten.zero_.default(torch.as_strided(buf0, (40,), (1,)))"))
    done = replay(folder, "--poison")
    assert "OVERRUN: 32 bytes were written between the elements of buf0: element 8 of buf0" in done.stdout, done
    assert done.returncode == 11


def test_a_result_that_nothing_writes(tmp_path: Path) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_clone", Kind.CLONE, "aten.clone.default")
    source = torch.ones(1024)
    folder = write(launch.tensor("kv", source).result("buf1", source.clone()).build(), tmp_path / "repro")
    assert replay(folder, "--poison").returncode == 0
    script = folder / "repro.py"
    text = script.read_text()
    call = "torch.ops.aten.clone.default(kv)"
    assert call in text
    script.write_text(text.replace(call, "torch.ops.aten.empty_like.default(kv)"))
    done = replay(folder, "--poison")
    assert "1024 of 1024 elements of buf1 depend on uninitialised memory" in done.stdout, done
    assert done.returncode == 10


def test_arguments_that_share_a_storage_and_empty_ones(tmp_path: Path) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    memory = torch.arange(12.0)
    launch = LaunchBuilder(saved, "aoti_torch_cpu_cat_out", Kind.SHIM_OUT, "aten.cat.out")
    parts = {"head": memory[:4], "none": torch.empty(0), "tail": memory[2:8], "one": memory[3:4].expand(2)}
    launch.tensor("buf0", torch.zeros(12), Role.OUT, after=torch.cat(list(parts.values())))
    for i, (name, part) in enumerate(parts.items()):
        launch.tensor(name, part, form=Form.LIST, element=i, at=1)
    launch.position = 2
    folder = write(launch.number("tensors_len_", 4).number("dim", 0).build(), tmp_path / "repro")
    assert replay(folder).returncode == 0
    done = replay(folder, "--poison")
    assert "no overrun within 64 KiB" in done.stdout, done
    assert done.returncode == 0
