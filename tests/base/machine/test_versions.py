from __future__ import annotations

import platform

import torch

from aoti_debug.base.machine.versions import installed_versions


def test_only_what_is_installed_has_a_version() -> None:
    found = installed_versions("torch", "no-such-package")
    assert list(found) == ["Python", "system", "torch"]
    assert found["Python"] == platform.python_version()
    assert torch.__version__.startswith(found["torch"].partition("+")[0])
