from __future__ import annotations

import pytest

from benchmarks.models.public_scripts import PublicScript
from benchmarks.triage.scripts import SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_line_to_name_is_one_of_the_script_with_the_fault(script: PublicScript) -> None:
    lines = [line.strip() for line in script.planted.splitlines()]
    assert lines.count(script.guilty) == 1
    compile(script.planted, script.name, "exec")
    assert script.planted != script.text
