"""Launches of collectives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aoti_debug.package.manifest import Form, ProxyArgument, Role
from aoti_debug.runs.ranks import ranks_run
from aoti_debug.runs.rundir.run_directory import open_run
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site
from tests.runs.ranks.ranked import NOBODY, REDUCE, WAIT, Y, Z

BROADCAST = "aoti_torch_cpu__c10d_functional_broadcast_"


def test_a_wait_is_for_the_collective_on_its_tensor(tmp_path: Path) -> None:
    """Two begin before the first is waited for."""
    package = make_manifest(site(REDUCE, arg("buf0", Role.INOUT)), site(WAIT, arg("buf0")))
    writer = JournalWriter(level=1, pid=NOBODY)
    writer.call_begin(0)
    for launch, (place, tensor) in enumerate([(0, Y), (0, Z), (1, Y), (1, Z)]):
        writer.launch_begin(launch, place, tensor, call=0)
        writer.launch_end(launch, call=0)
    run = open_run(run_directory(tmp_path, package, writer))
    assert [(first.id, launch.id) for first, launch in ranks_run.waits(run)] == [("0.0", "0.2"), ("0.1", "0.3")]


@pytest.mark.parametrize(("group", "is_of_all"), [("0", True), ("3", False)])
def test_groups(group: str, is_of_all: bool) -> None:
    value = ProxyArgument("group_name", False, json.dumps({"as_string": group}))
    text = arg("group_name", Role.IN, Form.STRING, text=f'"{group}"')
    for begins in (site(REDUCE, operands=(value,)), site(REDUCE, arg("buf0"), text)):
        assert ranks_run.is_of_all_ranks(begins) == is_of_all
    assert not ranks_run.is_of_all_ranks(site(REDUCE))


def test_the_root_of_a_broadcast_waits_for_nobody() -> None:
    assert ranks_run.is_synchronous(site(REDUCE))
    assert not ranks_run.is_synchronous(site(BROADCAST))
