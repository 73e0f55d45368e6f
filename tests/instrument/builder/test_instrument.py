"""What instrumented code does when it runs, on a wrapper in miniature with a recorder in the runtime's place."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.builder.compiling.site_tables import MANIFEST_PATH_MACRO, sites_cpp
from aoti_debug.instrument.builder.instrument import Edit, apply, instrument
from aoti_debug.instrument.wrapper.analysis import Analysis, analyse
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.weights_file import WeightsPlace
from tests.factories import make_manifest
from tests.paths import CPP, GOLDEN, ROOT

SHIMS = ROOT / "runtime_shims"
MINIATURE = CPP / "miniature.cpp"
FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", f"-I{SHIMS}")


def analysis(text: str = "") -> Analysis:
    """The sites of the miniature, or of a variant; its shim functions serve as their own header."""
    text = text or MINIATURE.read_text()
    return analyse(text, headers=["\n".join(line for line in text.split("\n") if line.startswith("AOTITorchError"))])


def described() -> Manifest:
    parsed = analysis()
    return replace(make_manifest(*parsed.sites, kernels=parsed.kernels), level=2, filters=('a"b\\', "!c?"))


def compiler() -> str:
    path = shutil.which("g++")
    if path is None:
        pytest.skip("needs g++")
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("miniature")
    parsed, data = analysis(), described()
    (folder / "wrapper.cpp").write_text(instrument(MINIATURE.read_text(), parsed))
    (folder / "sites.cpp").write_text(sites_cpp(data))
    (folder / "manifest.json").write_text(data.json_text)
    sources = [folder / "wrapper.cpp", folder / "sites.cpp", CPP / "recorder.cpp"]
    macro = f'-D{MANIFEST_PATH_MACRO}="{folder}/manifest.json"'
    subprocess.run([compiler(), *FLAGS, macro, *map(str, sources), "-o", str(folder / "program")], check=True)
    return folder / "program"


@pytest.mark.parametrize("level", [0, 2, 3])
def test_a_run(program: Path, level: int, golden: Callable[[Path, str], None]) -> None:
    """Arguments are evaluated once, converted as before and described; codes, exceptions, loops and grids are told."""
    done = subprocess.run([str(program), str(level)], capture_output=True, text=True, check=True)
    golden(GOLDEN / "wrapper" / f"miniature.level{level}.txt", done.stdout)


def test_level_0_does_what_the_plain_text_does(program: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    sources = [MINIATURE, CPP / "recorder.cpp", program.parent / "sites.cpp"]
    flags = ("-std=c++17", "-w", f"-I{SHIMS}", f'-D{MANIFEST_PATH_MACRO}="{program.parent}/manifest.json"')
    subprocess.run([compiler(), *flags, *map(str, sources), "-o", str(plain)], check=True)
    runs = [subprocess.run([str(p), "0"], capture_output=True, text=True, check=True).stdout for p in (plain, program)]
    assert runs[0] == runs[1]
    assert "raised aoti_torch_cpu_abs(arg0, &buf2_handle) API call failed at wrapper.cpp, line " in runs[1]


GUARDS = """#include <cstdio>
namespace torch::aot_inductor {
struct AOTICudaGuard {
  explicit AOTICudaGuard(int device) { std::printf("device %d\\n", device); }
  ~AOTICudaGuard() { std::printf("device before\\n"); }
};
struct AOTICudaStreamGuard {
  AOTICudaStreamGuard(void*, int device) { std::printf("stream of device %d\\n", device); }
  ~AOTICudaStreamGuard() { std::printf("stream before\\n"); }
};
}  // namespace torch::aot_inductor
"""


def on_cuda() -> str:
    """The miniature as it is generated for CUDA, with a launch in front of the model's own guard."""
    include = "#include <torch/csrc/inductor/aoti_include/cuda.h>\n#include <array>"
    guard = "AOTICudaStreamGuard stream_guard(stream, this->device_idx_);"
    text = MINIATURE.read_text().replace("#include <array>", include)
    return text.replace("    int32_t var_2 = 1;", f"    {guard}\n    int32_t var_2 = 1;")


@pytest.fixture(scope="module")
def program_on_cuda(tmp_path_factory: pytest.TempPathFactory, program: Path) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    header = folder / "torch" / "csrc" / "inductor" / "aoti_include" / "cuda.h"
    header.parent.mkdir(parents=True)
    header.write_text(GUARDS)
    parsed = analysis(on_cuda())
    (folder / "wrapper.cpp").write_text(instrument(on_cuda(), parsed))
    sources = [folder / "wrapper.cpp", program.parent / "sites.cpp", CPP / "recorder.cpp"]
    flags = (*FLAGS, f"-I{folder}", f'-D{MANIFEST_PATH_MACRO}="{program.parent}/manifest.json"')
    subprocess.run([compiler(), *flags, *map(str, sources), "-o", str(folder / "program")], check=True)
    return folder / "program"


GUARDED = re.compile(r"(?:device|stream|call) .*|begin 0 .*|raised .*")


@pytest.mark.parametrize(("level", "failure"), [(2, "empty"), (3, "aoti_torch_cpu_abs")])
def test_a_call_on_cuda_lasts_while_its_device_is_current(program_on_cuda: Path, level: int, failure: str) -> None:
    done = subprocess.run([str(program_on_cuda), str(level)], capture_output=True, text=True, check=True)
    *lines, raised = [line for line in done.stdout.splitlines() if GUARDED.fullmatch(line)]
    assert [line.partition(" aoti_torch")[0] for line in lines] == [
        "device 0",
        "call 0 model 1 stream 0",
        "begin 0",
        "stream of device 0",
        "stream before",
        "call end, failed 1",
        "device before",
    ]
    assert failure in raised


def test_level_0_leaves_the_device_alone(program_on_cuda: Path) -> None:
    done = subprocess.run([str(program_on_cuda), "0"], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if GUARDED.fullmatch(line)]
    assert lines[:2] == ["stream of device 0", "stream before"]
    assert len(lines) == 3


def test_lines_keep_their_numbers() -> None:
    parsed = analysis()
    original = MINIATURE.read_text().split("\n")
    lines = instrument(MINIATURE.read_text(), parsed).split("\n")
    directive = next(i for i, line in enumerate(lines) if line.startswith("#line"))
    number = int(lines[directive].split()[1])
    assert len(lines) - directive - 1 == len(original) - number + 1
    assert lines[directive + 1] == original[number - 1]
    for s in parsed.sites:
        assert s.callee in original[s.line - 1]


def test_unrecognised_calls_are_left_alone() -> None:
    text = MINIATURE.read_text().replace("auto& kernels = kernels_;", "op.callBoxed(&stack);")
    parsed = analysis(text)
    assert "op.callBoxed(&stack);" in instrument(text, parsed)


def test_an_empty_constant_function_is_no_call() -> None:
    text = MINIATURE.read_text()
    start = text.index("void AOTInductorModel::run_impl(")
    with_const = f"{text[:start]}void AOTInductorModel::_const_run_impl(int x) {{}}\n{text[start:]}"
    parsed = analysis(with_const)
    assert instrument(with_const, parsed).count("aoti_debug::Call ") == 1


def test_sites_of_another_text_are_refused() -> None:
    parsed = analysis()
    moved = tuple(replace(site, line=site.line + 1) for site in parsed.sites)
    with pytest.raises(ArtifactError, match="is not in line"):
        instrument(MINIATURE.read_text(), replace(parsed, sites=moved))


def test_edits_must_not_overlap() -> None:
    assert apply("abcdef", [Edit(4, 5, "E"), Edit(1, 3, ""), Edit(3, 3, "-")]) == "a-dEf"
    with pytest.raises(ArtifactError, match="overlap"):
        apply("abcdef", [Edit(1, 3, ""), Edit(2, 4, "")])


def test_the_runtime_is_told_of_changed_weights() -> None:
    """Before each call that changes them, with what the host asked for."""
    functions = """
AOTIRuntimeError update(AOTInductorModelContainer* container, bool use_inactive, bool validate_full_update) {
  container->update_constant_buffer(*input_map, use_inactive, validate_full_update);
  container->swap_constant_buffer();
  container->run_const_fold(use_inactive, stream, proxy_executor_handle);
  container->free_inactive_constant_buffer();  // not container->swap_constant_buffer()
  container->run(inputs);
}
"""
    text = MINIATURE.read_text().replace("// clang-format off", f"{functions}// clang-format off")
    parsed = analysis(text)
    instrumented = instrument(text, parsed)
    assert re.findall(r"aoti_debug_note_weights\((\".*?)\); container->(\w+)", instrumented) == [
        ('"updated", use_inactive, validate_full_update', "update_constant_buffer"),
        ('"swapped", 0, 1', "swap_constant_buffer"),
        ('"folded", use_inactive, 1', "run_const_fold"),
        ('"freed", 1, 1', "free_inactive_constant_buffer"),
    ]


def test_the_first_weights_of_a_model_without_any_are_no_change() -> None:
    function = "void update(AOTInductorModelContainer* container) { container->update_constant_buffer(a, b, c); }\n"
    text = MINIATURE.read_text().replace("// clang-format off", f"{function}// clang-format off")
    parsed = analysis(text)
    instrumented = instrument(text, parsed, WeightsPlace.BY_REFERENCE)
    assert (
        "static std::atomic<bool> aoti_debug_has_weights{false};"
        ' if (aoti_debug_has_weights.exchange(true)) aoti_debug_note_weights("updated", use_inactive, '
    ) in instrumented
