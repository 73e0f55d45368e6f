"""`--evidence`: what programs read of each mode and outcome. The scripts share one process as far as they let it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.machine.files import json_data
from aoti_debug.package.manifest import Kernel, KernelCompilation, Kind, Role
from aoti_debug.repro.run_repro import Evidence, Machine, gather, modes, this_machine
from aoti_debug.repro.templates.accesses import Access, CodeLine, LoadedIndex
from tests.repro.repro_launches import ADD_ONE, PLAIN, LaunchBuilder, cpp_repro, replay, write
from tests.wrong_types import assert_refused


@pytest.mark.parametrize(
    ("kind", "device", "machine", "possible"),
    [
        (Kind.TRITON, "cuda", Machine(), ["interpret", "cubin", "jit", "memcheck", "initcheck", "poison"]),
        (Kind.TRITON, "cuda", Machine(cuda="no device"), ["interpret"]),
        (Kind.TRITON, "cuda", Machine(triton="no triton"), []),
        (Kind.TRITON, "cuda", Machine(compute_sanitizer="none"), ["interpret", "cubin", "jit", "poison"]),
        (Kind.CPP, "cpu", Machine(cuda="no device"), ["checked", "native", "address", "poison"]),
        (Kind.CPP, "cpu", Machine(address_sanitizer="none"), ["checked", "native", "poison"]),
        (Kind.PROXY, "cpu", Machine(cuda="no device"), ["operator", "poison"]),
        (Kind.SHIM_OUT, "cuda", Machine(), ["operator", "memcheck", "initcheck", "poison"]),
    ],
)
def test_the_modes_of_a_machine(kind: Kind, device: str, machine: Machine, possible: list[str]) -> None:
    found = modes(kind, device, machine)
    assert [mode.name for mode in found if not mode.missing] == possible
    assert all(mode.missing for mode in found if mode.name not in possible)


def test_this_machine_names_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = KernelCompilation("/no/such/c++", (), (), ())
    monkeypatch.setenv("PATH", str(tmp_path))
    found = this_machine(compiler, cuda=False)
    assert found.compiler == found.address_sanitizer == "/no/such/c++ was not found"
    assert "CUDA" in found.cuda
    assert replace(found, cuda="") == this_machine(compiler, cuda=True)


TITLE = "0.3 cpp_fused_planted_0"
KEYS = {"title", "mode", "option", "sanitize", "outcome", "code", "what", "accesses", "lines"}


def seen(folder: Path, *options: str) -> dict[str, Any]:
    path = folder / "evidence.json"
    done = replay(folder, *options, "--evidence", str(path))
    found: dict[str, Any] = json.loads(path.read_text())
    assert set(found) == KEYS
    assert found["code"] == done.returncode, done
    assert found["lines"] == done.stdout.splitlines()
    assert [p.name for p in folder.iterdir() if "evidence" in p.name] == ["evidence.json"]
    path.unlink()
    return found


def operator(folder: Path, index: list[int], fault: str = "") -> Path:
    (folder / "run").mkdir(parents=True)
    launch = LaunchBuilder(folder / "run", "aoti_torch_cpu_embedding", Kind.SHIM_ALLOC, "aten.embedding.default")
    launch.tensor("weight", torch.ones(8, 4), Role.IN).tensor("arg1_1", torch.tensor(index))
    launch.number("padding_idx", -1).number("scale_grad_by_freq", 0).number("sparse", 0)
    return write(launch.build(fault), folder / "repro")


def test_a_launch_that_dies_though_it_was_recorded_to_end_well(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, "*(volatile int*)16 = 1;", after=torch.zeros(64))
    found = seen(folder)
    assert (found["mode"], found["outcome"], found["code"]) == ("native", "fault", 11)
    assert found["what"] == "SIGSEGV"
    assert found["lines"] == ["here:     SIGSEGV", f"{TITLE}: a fault; the recorded launch had none"]


def test_as_recorded_and_differs(tmp_path: Path) -> None:
    found = seen(cpp_repro(tmp_path, ADD_ONE))
    assert (found["title"], found["mode"], found["option"], found["sanitize"]) == (TITLE, "native", "", "")
    assert (found["outcome"], found["code"], found["what"]) == ("as recorded", 0, "")
    (tmp_path / "more").mkdir()
    found = seen(cpp_repro(tmp_path / "more", ADD_ONE, after=torch.zeros(64)))
    assert (found["outcome"], found["what"]) == ("differs", "DIFFERS in buf0")


def test_checked_pointers_confirm_a_recorded_fault(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, "out_ptr0[0] = in_ptr0[ks0 + 1];", fault="SIGSEGV")
    found = seen(folder, "--backend", "checked")
    assert (found["mode"], found["outcome"], found["code"]) == ("checked", "fault", 11)
    assert found["what"] == "out-of-bounds load from arg0_1 (in_ptr0): element 65 of 64, 2 past the end; returned 0"
    (access,) = found["accesses"]
    assert access == {
        "kind": "load",
        "what": "",
        "argument": "arg0_1",
        "parameter": "in_ptr0",
        "element": 65,
        "elements": 64,
        "beyond": 2,
        "bytes": 4,
        "program": None,
        "count": 1,
        "source": {"file": "SOURCE", "line": 7, "text": "out_ptr0[0] = in_ptr0[ks0 + 1];"},
        "index": None,
    }
    assert found["lines"][:2] == ["recorded: SIGSEGV", f"{TITLE}: 1 out-of-bounds access"]


def test_sanitizer_and_guard_zones(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, f"{ADD_ONE} out_ptr0[ks0 + 1] = 3;")
    found = seen(folder, "--poison")
    (access,) = found["accesses"]
    assert (found["option"], found["outcome"]) == ("poison", "fault")
    assert (access["kind"], access["argument"], access["element"], access["beyond"]) == ("overrun", "buf0", 65, 2)
    assert found["what"].startswith("4 bytes were written past the end of buf0")
    found = seen(folder, "--sanitize")
    (access,) = found["accesses"]
    assert (found["sanitize"], found["outcome"]) == ("memcheck", "fault")
    assert (access["kind"], access["argument"], access["element"]) == ("write", "buf0", 65)
    assert access["source"]["text"].endswith("out_ptr0[ks0 + 1] = 3;")


def test_an_operator_with_an_index_outside(tmp_path: Path) -> None:
    recorded = "index out of range in self"
    found = gather(operator(tmp_path, [1, 99, 2], recorded))
    assert (found.mode, found.outcome, found.what) == ("operator", "fault", f"IndexError: {recorded}")
    (access,) = found.accesses
    assert (access.kind, access.argument, access.element, access.elements) == ("index", "weight", None, 8)
    assert access.index == LoadedIndex("arg1_1", 1, 99)
    assert found.lines[2] == "  index outside of dimension 0 of weight, which has 8 elements: element 1 of arg1_1 is 99"


def test_what_cannot_be_run_has_failed(tmp_path: Path) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "cpp_fused_bad_0", Kind.CPP)
    launch.tensor("buf1", torch.ones(3), Role.INOUT, param="in_out_ptr0", ctype="float*")
    kernel = Kernel("cpp_fused_bad_0", "cpp", PLAIN + 'extern "C" void cpp_fused_bad_0(float* p) { nonsense; }\n', "")
    folder = write(launch.build("SIGSEGV"), tmp_path / "repro", kernel)
    found = seen(folder)
    assert (found["outcome"], found["code"], found["what"]) == ("failed", 1, "the kernel does not compile")
    assert found["lines"][1] == (
        "0.3 cpp_fused_bad_0: the replay failed before the launch (the kernel does not compile:)"
    )
    (folder / "tensors" / "before_buf1.safetensors").unlink()
    script = folder / "repro.py"
    script.write_text(script.read_text().replace("nonsense;", ""))
    found = seen(folder)
    assert found["what"].startswith("FileNotFoundError: ")
    assert "exit code 11" not in found["lines"][1]
    found = seen(folder, "--sanitize", "racecheck")
    assert (found["outcome"], found["option"]) == ("failed", "sanitize")
    assert "racecheck watches CUDA kernels" in found["what"]


def script(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "repro.py").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "what", "code"),
    [
        ("import time; time.sleep(60)", "no end within 1 s", -9),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV", -11),
        ("raise SystemExit('no compiler')", "no compiler", 1),
        ("open(__import__('sys').argv[-1], 'w').write('{}')", "its evidence cannot be read: ", 0),
        ("open(__import__('sys').argv[-1], 'w').write('[' * 200000)", "its evidence cannot be read: ", 0),
    ],
)
def test_scripts_that_leave_no_evidence(tmp_path: Path, text: str, what: str, code: int) -> None:
    timeout = 1.0 if "sleep" in text else 60.0
    found = gather(script(tmp_path / "repro", text), ("--sanitize", "initcheck"), timeout)
    assert (found.outcome, found.code, found.sanitize, found.option) == ("failed", code, "initcheck", "sanitize")
    assert found.what.startswith(what)


def test_gathered_evidence_is_the_file(tmp_path: Path) -> None:
    access = Access(
        "bounds",
        "load",
        argument="in_ptr0",
        element=9,
        elements=4,
        beyond=6,
        bytes=4,
        source=CodeLine("repro.py", 3, "tl.load(in_ptr0 + i)"),
        program=(1, 0, 0),
        position=(5,),
        count=2,
        index=LoadedIndex("in_ptr1", 2, 9),
    )
    assert Access.from_json(access.to_json()) == access
    named = access.named({"in_ptr0": "buf1", "in_ptr1": "arg2_1"})
    assert (named.parameter, named.index) == ("in_ptr0", LoadedIndex("arg2_1", 2, 9, "in_ptr1"))
    whole = {
        **dict.fromkeys(KEYS - {"accesses", "lines", "code"}, "x"),
        "accesses": [named.evidence()],
        "lines": ["a"],
        "code": 11,
    }
    text = f"import sys; open(sys.argv[-1], 'w').write({json.dumps(whole)!r}); sys.exit(11)"
    found = gather(script(tmp_path / "repro", text))
    assert found == json_data.from_data(Evidence, whole)
    (seen_one,) = found.accesses
    assert (seen_one.program, seen_one.index) == ((1, 0, 0), LoadedIndex("arg2_1", 2, 9))
    assert seen_one.source == CodeLine("repro.py", 3, "tl.load(in_ptr0 + i)")
    data = json.loads(json.dumps(whole))
    assert_refused(lambda changed: json_data.from_data(Evidence, changed), data, json_data.DamagedJsonError, ", not ")


def test_evidence_that_cannot_be_written(tmp_path: Path) -> None:
    done = replay(operator(tmp_path, [1]), "--evidence", str(tmp_path / "no" / "file.json"))
    assert done.stderr.endswith(f"cannot write {tmp_path}/no/file.json: No such file or directory\n")
    assert done.returncode == 1
