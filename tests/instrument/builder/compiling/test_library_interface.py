from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.instrument.builder.compiling.compile_library import split

HEAD = "#include <torch/csrc/inductor/aoti_runtime/interface.h>\n#define RETURN return 0;\n"
HELPERS = "namespace {\nint helper() {\n  return 0;\n}\n} // namespace\n\n"
FUNCTIONS = """extern "C" {

AOTIRuntimeError AOTInductorModelContainerRun(
    int x) {
  RETURN
}

AOTIRuntimeError AOTInductorModelDelete() {
  RETURN
}
} // extern "C"
"""
MODEL = "\nnamespace torch::aot_inductor {\nvoid AOTInductorModel::run_impl() {}\n}\n"


@pytest.mark.parametrize("helpers", ["", HELPERS])
def test_the_model_is_what_is_left_at_its_lines(helpers: str) -> None:
    wrapper = HEAD + helpers + FUNCTIONS + MODEL
    parts = split(wrapper)
    assert parts is not None
    assert parts.interface == HEAD + helpers + FUNCTIONS
    assert parts.model.split() == (HEAD + MODEL).split()
    assert parts.model.splitlines().index("void AOTInductorModel::run_impl() {}") == wrapper.splitlines().index(
        "void AOTInductorModel::run_impl() {}"
    )


def test_the_model_includes_no_container_unless_it_names_it() -> None:
    container = "#include <torch/csrc/inductor/aoti_runtime/model_container.h>"
    parts = split(f"{container}\n{HEAD}{FUNCTIONS}{MODEL}")
    assert parts is not None
    assert parts.interface.startswith(container)
    assert parts.model.splitlines()[0] == "#include <torch/csrc/inductor/aoti_runtime/model.h>"
    uses = split(f"{container}\n{HEAD}{FUNCTIONS}{MODEL}AOTInductorModelContainer* one;\n")
    assert uses is not None
    assert uses.model.splitlines()[0] == container


@pytest.mark.parametrize(
    "wrapper",
    [
        pytest.param(HEAD + MODEL, id="no functions"),
        pytest.param(HEAD + FUNCTIONS.replace("ContainerRun", "Run") + MODEL, id="others"),
        pytest.param(HEAD + FUNCTIONS + MODEL + "int x = AOTInductorModelDelete();\n", id="one is called"),
        pytest.param(HEAD + FUNCTIONS.replace('} // extern "C"', "}") + MODEL, id="no end"),
    ],
)
def test_a_wrapper_of_another_form_stays_whole(wrapper: str) -> None:
    assert split(wrapper) is None


def test_declarations_of_the_users_shims_stay_with_the_model() -> None:
    shim = 'extern "C" {\n    extern int my_shim();\n}\n'
    parts = split(HEAD + shim + FUNCTIONS + MODEL)
    assert parts is not None
    assert shim in parts.model


def test_the_text_of_the_installed_torch() -> None:
    text = (Path(torch.__file__).parent / "_inductor/codegen/aoti_runtime/interface.cpp").read_text()
    parts = split(text + MODEL)
    assert parts is not None
    assert "AOTInductorModelContainerCreate" not in parts.model
