from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.machine.compiler import find_compiler
from aoti_debug.instrument.builder.compiling.site_tables import MANIFEST_PATH_MACRO, c_literal, sites_cpp
from aoti_debug.package.manifest import Certainty, CType, Form, Kernel, KernelParam, Kind, ModelLine, Provenance
from tests.factories import arg, make_manifest, site
from tests.paths import ROOT

FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'runtime_shims'}")


def test_a_model_without_launches_has_tables(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(make_manifest().json_text)
    (tmp_path / "sites.cpp").write_text(sites_cpp(make_manifest()))
    macro = f'-D{MANIFEST_PATH_MACRO}="{tmp_path}/manifest.json"'
    command = [find_compiler().path, *FLAGS, macro, "-c", str(tmp_path / "sites.cpp"), "-o", str(tmp_path / "sites.o")]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize(
    ("device", "kind", "callee", "expected"),
    [
        ("cpu", Kind.PROXY, "aoti_torch_proxy_executor_call_function", 1),
        ("cuda", Kind.PROXY, "aoti_torch_proxy_executor_call_function", 0),
        ("cuda", Kind.SHIM_OUT, "aoti_torch_cuda_mm_out", 0),
        ("cuda", Kind.SHIM_OUT, "aoti_torch_cpu_mm_out", 1),
        ("cuda", Kind.SHIM_INPLACE, "aoti_torch_cpu__c10d_functional_all_reduce_", 0),
        ("cuda", Kind.CPP, "cpp_fused_add_0", 1),
        ("cuda", Kind.ITEM, "aoti_torch_item_bool", 1),
    ],
)
def test_which_calls_wait_for_the_device(device: str, kind: Kind, callee: str, expected: int) -> None:
    text = sites_cpp(make_manifest(site("k", kind=kind, callee=callee), device=device))
    assert f'    {{"k", nullptr, 0, 0, {expected}, 0, 0, {{}}, ' in text


def test_a_launch_on_a_side_stream() -> None:
    text = sites_cpp(make_manifest(replace(site("k"), stream=2), device="cuda"))
    assert '    {"k", nullptr, 0, 0, 0, 0, 1, {}, ' in text


def test_modules_and_lines_are_lists_of_lines() -> None:
    line = ModelLine("/a b.py", 3, "forward", "")
    provenance = Provenance(Certainty.EXACT, source=(line,), modules=("encoder.0", "head"))
    package = replace(make_manifest(site("k", provenance=provenance)), module_filters=("head", "!x"), line_filters=())
    text = sites_cpp(package)
    assert '{}, "encoder.0\\012head", "/a b.py:3"},' in text
    assert '    "head,!x",\n    "",\n};' in text


def test_slots_are_the_arguments_in_order() -> None:
    sizes = arg("size[0]", form=Form.INTS, element=0, param="size")
    stable = arg("stable", form=Form.SCALAR_REF, referent=CType.I32)
    lines = sites_cpp(make_manifest(site("k", arg("buf0"), sizes, stable))).split("\n")
    start = lines.index("const AotiDebugSlot slots_0[] = {")
    assert lines[start + 1 : start + 4] == [
        '    {"buf0", "", 0, -1, 0, 1, 0, 0},',
        '    {"size[0]", "size", 1, 0, 8, 1, 0, 0},',
        '    {"stable", "", 2, -1, 7, 1, 4, 0},',
    ]


def test_a_triton_site_counts_once_its_grid_is_known() -> None:
    kernel = Kernel("k_0", "triton", "", "", id=0, params=(KernelParam("x", "CUdeviceptr", CType.ADDRESS),))
    launched = site("k_0", kind=Kind.TRITON, launches=("k_0",))
    text = sites_cpp(make_manifest(launched, site("on_cpu", kind=Kind.TRITON, id_=1), kernels=[kernel], device="cuda"))
    assert '    {"k_0", nullptr, 0, 0, 0, 1, 0, {}, ' in text
    assert '    {"on_cpu", nullptr, 0, 1, 0, 0, 0, {}, ' in text
    assert "const uint8_t types_0[] = {12};" in text


def test_a_literal_holds_any_text() -> None:
    assert c_literal('a"b\\c?\n\u00e9') == '"a\\042b\\134c\\077\\012\\303\\251"'
