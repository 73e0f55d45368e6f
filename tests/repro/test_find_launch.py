from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.abi import FaultDomain, Phase, SaveStatus
from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.package.argument_values import Absent
from aoti_debug.package.manifest import Form, Role
from aoti_debug.repro.recorded_launch import fault_of, find_launch, recorded_launch
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.rundir import run_directory as rundir
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

MANIFEST = make_manifest(
    site("cpp_fused_relu_1", arg("buf0", Role.IN, Form.POINTER)),
    site("aoti_torch_cpu_addmm_out", arg("buf1", Role.OUT), arg("l_bias")),
    site("aoti_torch_cpu_topk", arg("buf1"), arg("buf2", Role.OUT, Form.OUTPUT_SLOT)),
    site("cpp_fused_never_2"),
)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    journal = JournalWriter(level=1)
    made = tensor(2, data_ptr=0x3000)
    journal.launch(0, 0, tensor(4))
    journal.launch_begin(1, 1, tensor(2, 2), tensor(2, data_ptr=0x2000))
    journal.tensor_file(1, 0, Phase.BEFORE, "tensors/0/a")
    journal.tensor_file(1, 0, Phase.AFTER, "tensors/0/b", status=SaveStatus.LINKED)
    journal.tensor_file(1, 1, Phase.BEFORE, "", status=SaveStatus.SKIPPED, reason="larger than 1 byte")
    journal.launch_end(1)
    journal.launch(2, 0, tensor(4))
    journal.launch_begin(3, 2, tensor(2, 2), Absent.UNSET)
    journal.launch_end(3, {1: made})
    return rundir.open_run(run_directory(tmp_path, MANIFEST, journal))


def test_a_kernel_means_its_first_launch(run: RunDir) -> None:
    assert find_launch(run, "cpp_fused_relu_1", None).id == "0.0"


def test_the_guilty_launch_comes_before_the_first(run: RunDir) -> None:
    guilty = run.launch("0.2")
    assert find_launch(run, "cpp_fused_relu_1", None, [guilty]).id == "0.2"
    assert find_launch(run, "aoti_torch_cpu_topk", None, [guilty]).id == "0.3"


def test_a_launch_can_be_named(run: RunDir) -> None:
    assert find_launch(run, "cpp_fused_relu_1", "2", [run.launch("0.0")]).id == "0.2"


@pytest.mark.parametrize(
    ("word", "id_"),
    [
        ("0.3", "0.3"),
        ("1", "0.1"),
        ("*topk", "0.3"),
        ("cpp_fused", "0.0"),
        ("aoti_torch…topk", "0.3"),
        ("aoti_torch_cpu_a", "0.1"),
    ],
)
def test_what_show_prints_names_a_launch(run: RunDir, word: str, id_: str) -> None:
    assert find_launch(run, word, None).id == id_


def test_of_several_kernels_the_suspected_launch_is_taken(run: RunDir) -> None:
    assert find_launch(run, "aoti_torch", None, [run.launch("0.2"), run.launch("0.3")]).id == "0.3"
    assert find_launch(run, "aoti_torch", "0.1").id == "0.1"
    with pytest.raises(UsageError, match="'aoti_torch' names launches of 2 kernels") as caught:
        find_launch(run, "aoti_torch", None)
    assert caught.value.hint == "there is aoti_torch_cpu_topk, aoti_torch_cpu_addmm_out"


def test_without_a_word_the_suspected_launch_is_taken(run: RunDir) -> None:
    assert find_launch(run, "", None, [run.launch("0.2")]).id == "0.2"
    assert find_launch(run, "", "0.1").id == "0.1"
    with pytest.raises(UsageError, match=r"no launch of run .* is known to be at fault"):
        find_launch(run, "", None)


def test_a_launch_of_another_kernel_is_refused(run: RunDir) -> None:
    with pytest.raises(UsageError, match=r"launch 0\.1 is of aoti_torch_cpu_addmm_out") as caught:
        find_launch(run, "cpp_fused_relu_1", "0.1")
    assert caught.value.hint == "cpp_fused_relu_1 was launched as 0.0, 0.2"


def test_a_launch_that_is_not_there(run: RunDir) -> None:
    with pytest.raises(RunDirError, match=r"has no launch 0\.9"):
        find_launch(run, "cpp_fused_relu_1", "9")


def test_an_unknown_kernel_lists_the_near_ones(run: RunDir) -> None:
    with pytest.raises(UsageError, match="'cpp_fuse_relu' is neither a kernel nor a launch of run") as caught:
        find_launch(run, "cpp_fuse_relu", None)
    assert caught.value.hint.startswith("there is cpp_fused_relu_1")
    assert caught.value.exit_code == 2


def test_a_kernel_that_was_not_launched(run: RunDir) -> None:
    with pytest.raises(UsageError, match="cpp_fused_never_2 was not launched in run"):
        find_launch(run, "cpp_fused_never_2", None)


def test_slots_carry_values_and_files(run: RunDir) -> None:
    recorded = recorded_launch(run, run.launch("0.1"), "")
    out, bias = recorded.slots
    assert (out.before, out.after) == (run.path / "tensors/0/a", run.path / "tensors/0/b")
    assert (bias.before, bias.after, bias.reason) == (None, None, "larger than 1 byte")
    assert bias.tensor is not None
    assert bias.tensor.data_ptr == 0x2000


def test_an_output_slot_has_the_value_from_after_the_launch(run: RunDir) -> None:
    _, made = recorded_launch(run, run.launch("0.3"), "").slots
    assert made.tensor is not None
    assert made.tensor.data_ptr == 0x3000


def test_what_a_launch_ended_in(tmp_path: Path) -> None:
    journal = JournalWriter(level=1)
    journal.launch(0, 0, tensor(4))
    journal.launch_begin(1, 1, tensor(2, 2), tensor(2))
    journal.launch_end(1, status=1)
    journal.launch_begin(2, 0, tensor(4))
    journal.fault(2, FaultDomain.EXCEPTION, text="index out of bounds")
    journal.launch_end(2, status=-1)
    journal.launch_begin(3, 0, tensor(4))
    found = rundir.open_run(run_directory(tmp_path, MANIFEST, journal, exit=Exit(ExitKind.FAULT, signal="SIGSEGV")))
    verdict = diagnose(found)
    assert verdict is not None
    assert [fault_of(launch, verdict) for launch in found.launches] == [
        "",
        "error code 1",
        "index out of bounds",
        verdict.what,
    ]
    assert fault_of(found.launches[3], None) == "it never returned"
