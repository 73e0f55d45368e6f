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
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "wrapper"

_BOILERPLATE = re.compile(r"(?<=\.h>\n)// Definition of AOTI runtime.*?^\} // extern \"C\"\n", re.DOTALL | re.MULTILINE)
_INPUT_CHECKS = re.compile(r"^AOTI_NOINLINE static void check_input_0\(.*?(?=^void AOTInductorModel)", re.DOTALL | re.MULTILINE)
_CONSTRUCTOR = re.compile(r"^AOTInductorModel::AOTInductorModel\(.*?^\} // namespace torch::aot_inductor\n", re.DOTALL | re.MULTILINE)
_DRIVER = re.compile(r"^#define CUDA_DRIVER_CHECK.*?(?=^CACHE_TORCH_)", re.DOTALL | re.MULTILINE)
_SIZE_ASSERTION = re.compile(r"^ *if \(_check_aoti_runtime_check_inputs_env\(\)\).*\n", re.MULTILINE)
_ALLOCATION = re.compile(r"^ *(?:static constexpr|const) int64_t \*?int_array_.*\n|^.*aoti_torch_empty_strided.*\n", re.MULTILINE)
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
    return anonymous(re.sub(r"\n{3,}", "\n\n", text))


def anonymous(text: str) -> str:
    """A text in which the places of the model and of torch are not those of one machine."""
    return _TORCH_FILE.sub('File "/usr/lib/python3/site-packages/', _MODEL_FILE.sub('File "/home/user/', text))


def store(name: str, archive: Path) -> None:
    """Stores the excerpts of a `package_cpp_only` archive."""
    with zipfile.ZipFile(archive) as file:
        texts = {member.rpartition("/")[2]: member for member in file.namelist()}
        for suffix, target in ((".wrapper.cpp", "cpp.txt"), (".wrapper.json", "proxy.json")):
            for found in (member for base, member in texts.items() if base.endswith(suffix)):
                text = file.read(found).decode()
                (GOLDEN / f"{name}.{target}").write_text(trim(text) if suffix == ".wrapper.cpp" else _pretty(text))
        text = anonymous(json.dumps(json.loads(file.read(texts["kernel_information.json"]))).replace('\\"', "\0"))
        (GOLDEN / f"{name}.provenance.json").write_text(_pretty(text.replace("\0", '\\"')))


def _pretty(text: str) -> str:
    return json.dumps(json.loads(text), indent=1) + "\n"


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
            store(name, Path(path))


if __name__ == "__main__":
    main(sys.argv[1:])
