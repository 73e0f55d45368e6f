"""Writes the wrapper excerpts under tests/golden/wrapper: what torch generates for the models of tests/models.py.

    python tests/wrapper/excerpts.py mixed control ...

lowers the models and stores what analyse() reads: `<name>.cpp.txt` (prototypes and the functions that launch; the
boilerplate and the kernels are left out), `<name>.proxy.json`, `<name>.provenance.json`. The listings and instrumented
texts beside them are written by `pytest --update-golden`.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "wrapper"

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
_FOLDER = re.compile(r'"/[^"]*/(?=[^/"]+\.cubin")')
_MODEL_FILE = re.compile(r'File "/[^"]*/(?=(?:models|gpu)\.py")')
_TORCH_FILE = re.compile(r'File "/[^"]*/(?=torch/)')


def trim(text: str) -> str:
    """A wrapper without what no launch depends on."""
    text = text[: text.rindex("} // namespace torch::aot_inductor") + len("} // namespace torch::aot_inductor\n")]
    for pattern in (_BOILERPLATE, _DRIVER, _INPUT_CHECKS, _SIZE_ASSERTION, _ALLOCATION):
        text = pattern.sub("", text)
    text = _CONSTRUCTOR.sub("} // namespace torch::aot_inductor\n", text)
    text = _FOLDER.sub('"/tmp/kernels/', text)
    return str(anonymous(re.sub(r"\n{3,}", "\n\n", text)))


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
            (GOLDEN / f"{name}.cpp.txt").write_text(trim(text))
        elif file.endswith(".wrapper.json"):
            (GOLDEN / f"{name}.proxy.json").write_text(_pretty(json.loads(text)))
        elif file == "kernel_information.json":
            (GOLDEN / f"{name}.provenance.json").write_text(_pretty(anonymous(json.loads(text))))


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def _texts(archive: Path) -> dict[str, str]:
    with zipfile.ZipFile(archive) as file:
        return {
            member.rpartition("/")[2]: file.read(member).decode()
            for member in file.namelist()
            if member.endswith((".cpp", ".json"))
        }


def main(names: list[str]) -> None:
    sys.path.insert(0, str(GOLDEN.parent.parent))
    import models
    import torch

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
    main(sys.argv[1:])
