"""Writes the wrapper excerpts under tests/golden/wrapper: what torch generates for the models of tests/models.py.

    python -m tests.instrument.wrapper.excerpts mixed control ...

lowers the models and stores what analyse() reads: `<name>.cpp.txt` (prototypes and the functions that launch; the
boilerplate and the kernels are left out), `<name>.proxy.json`, `<name>.provenance.json`. The listings and instrumented
texts beside them are written by `pytest --update-golden`.

    python -m tests.instrument.wrapper.excerpts --archive cuda lowered.pt2 triton_poi_fused_gt_sum_0 add_kernel_0 ...

does the same for a `package_cpp_only` archive from another machine, and keeps only these Triton kernels.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.paths import GOLDEN

WRAPPERS = GOLDEN / "wrapper"

_BOILERPLATE = re.compile(r"(?<=\.h>\n)// Definition of AOTI runtime.*?^\} // extern \"C\"\n", re.DOTALL | re.MULTILINE)
_INPUT_CHECKS = re.compile(
    r"^AOTI_NOINLINE static void check_input_0\(.*?(?=^void AOTInductorModel)", re.DOTALL | re.MULTILINE
)
_CONSTRUCTOR = re.compile(
    r"^AOTInductorModel::AOTInductorModel\(.*?^\} // namespace torch::aot_inductor\n", re.DOTALL | re.MULTILINE
)
_DRIVER = re.compile(r"^#define CUDA_DRIVER_CHECK.*?(?=^CACHE_TORCH_)", re.DOTALL | re.MULTILINE)
_SIZE_ASSERTION = re.compile(r"^ *if \(_check_aoti_runtime_check_inputs_env\(\)\).*\n", re.MULTILINE)
_ALLOCATION = re.compile(
    r"^ *(?:static constexpr|const) int64_t \*?int_array_.*\n|^.*aoti_torch_empty_strided.*\n", re.MULTILINE
)
_TRITON_DEFINITION = re.compile(r"^template <[^\n]*>\nstatic [^\n]*void call_(\w+)\(.*?^\}\n", re.DOTALL | re.MULTILINE)
_TRITON_MENTION = re.compile(
    r"(?:(?<!void )\bcall_|Provenance debug handles\] (?!aoti)|CUfunction )(\w+)(?=\(|:|\{nullptr\})"
)
_FOLDER = re.compile(r'"/[^"]*/(?=[^/"]+\.cubin")')
_MODEL_FILE = re.compile(r'File "/[^"]*/(?=(?:models|gpu)\.py")')
_TORCH_FILE = re.compile(r'File "/[^"]*/(?=torch/)')


def trim(text: str) -> str:
    """A wrapper without what no launch depends on."""
    text = text[: text.rindex("} // namespace torch::aot_inductor") + len("} // namespace torch::aot_inductor\n")]
    memory = () if "_aoti_aux_stream_cache.ensure" in text else (_ALLOCATION,)  # races are about memory
    for pattern in (_BOILERPLATE, _DRIVER, _INPUT_CHECKS, _SIZE_ASSERTION, *memory):
        text = pattern.sub("", text)
    text = _CONSTRUCTOR.sub("} // namespace torch::aot_inductor\n", text)
    text = _FOLDER.sub('"/tmp/kernels/', text)
    return str(anonymous(re.sub(r"\n{3,}", "\n\n", text)))


def only(text: str, kernels: Collection[str]) -> str:
    """A wrapper without the Triton kernels that are not in `kernels`, and without their launches."""

    def definition(match: re.Match[str]) -> str:
        return match.group() if match.group(1) in kernels else ""

    def wanted(line: str) -> bool:
        mention = _TRITON_MENTION.search(line)
        return mention is None or mention.group(1) in kernels

    text = _TRITON_DEFINITION.sub(definition, text)
    return "".join(line for line in text.splitlines(keepends=True) if wanted(line))


def anonymous(value: Any) -> Any:
    """A JSON value in which the places of the model and of torch are not those of one machine."""
    if isinstance(value, str):
        return _TORCH_FILE.sub('File "/usr/lib/python3/site-packages/', _MODEL_FILE.sub('File "/home/user/', value))
    if isinstance(value, list):
        return [anonymous(item) for item in value]
    return {key: anonymous(item) for key, item in value.items()} if isinstance(value, dict) else value


def store(name: str, files: Mapping[str, str]) -> None:
    """Stores the excerpts of the texts of a `package_cpp_only` archive, given by file name."""
    for file, text in files.items():
        if file.endswith(".wrapper.cpp"):
            (WRAPPERS / f"{name}.cpp.txt").write_text(trim(text))
        elif file.endswith(".wrapper.json"):
            (WRAPPERS / f"{name}.proxy.json").write_text(_pretty(json.loads(text)))
        elif file == "kernel_information.json":
            (WRAPPERS / f"{name}.provenance.json").write_text(_pretty(anonymous(json.loads(text))))


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def _texts(archive: Path) -> dict[str, str]:
    with zipfile.ZipFile(archive) as file:
        return {
            member.rpartition("/")[2]: file.read(member).decode()
            for member in file.namelist()
            if member.endswith((".cpp", ".json"))
        }


def store_archive(name: str, archive: Path, kernels: Collection[str]) -> None:
    """Stores the excerpts of an archive, with these Triton kernels only."""
    files = _texts(archive)
    for file, text in files.items():
        if file.endswith(".wrapper.cpp"):
            files[file] = only(text, kernels)
        elif file == "kernel_information.json":
            records = {key: value for key, value in json.loads(text).items() if _is_about(key, kernels)}
            files[file] = json.dumps(records)
    store(name, files)


def _is_about(handle: str, kernels: Collection[str]) -> bool:
    return handle.startswith("aoti_") or handle.rpartition(":")[0] in kernels


def lower(names: list[str]) -> None:
    """Lowers models of tests/models.py and stores their excerpts."""
    import torch

    from tests import models

    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            settings = {"aot_inductor.package_cpp_only": True, "trace.provenance_tracking_level": 1}
            path = torch._inductor.aoti_compile_and_package(
                models.program(name),
                package_path=f"{folder}/{name}.pt2",
                inductor_configs=settings | models.CASES[name].configs,
            )
            store(name, _texts(Path(path)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--archive"]:
        store_archive(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
    else:
        lower(sys.argv[1:])
