from __future__ import annotations

from pathlib import Path

from aoti_debug.base.abi import Phase, StatsFlag
from aoti_debug.package.manifest import Arg, Role, Site
from aoti_debug.runs.diagnosis.special_values import Special, SpecialValues, count
from aoti_debug.runs.rundir.run_directory import open_run
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor

HERE, ELSEWHERE = tensor(4, data_ptr=0x1000), tensor(4, data_ptr=0x2000)


def test_special_values_of_a_run(tmp_path: Path) -> None:
    sites = (write(arg("x"), arg("buf0", Role.OUT)), write(arg("buf1", Role.INOUT), arg("buf1", Role.INOUT)))
    journal = JournalWriter(level=2)
    journal.launch(0, 0, HERE, ELSEWHERE)
    journal.tensor_stats(0, 0, Phase.BEFORE, statistics(n_pos_inf=1))
    journal.tensor_stats(0, 0, Phase.AFTER, statistics(n_neg_inf=1))
    journal.tensor_stats(0, 1, Phase.AFTER, statistics(n_nan=1, n_pos_inf=1))
    journal.launch(1, 1, HERE, ELSEWHERE)
    journal.tensor_stats(1, 0, Phase.BEFORE, statistics(n_nan=1, n_neg_inf=2))
    journal.tensor_stats(1, 0, Phase.AFTER, None, flags=StatsFlag.UNINITIALISED)
    found = SpecialValues(open_run(run_directory(tmp_path, make_manifest(*sites), journal)).launches)
    written = {special: [(o.launch.id, o.argument.name) for o in found.written[special]] for special in Special}
    assert written == {Special.NAN: [("0.0", "buf0")], Special.PLUS_INF: [("0.0", "buf0")], Special.MINUS_INF: []}
    readers = {special: [launch.id for launch in found.readers[special]] for special in Special}
    assert readers == {Special.NAN: ["0.1"], Special.PLUS_INF: ["0.0"], Special.MINUS_INF: ["0.1"]}
    assert found.kinds == {Special.NAN, Special.PLUS_INF}


def write(*args: Arg) -> Site:
    return site("write", *args)


def test_counts_of_each_kind() -> None:
    observed = statistics(n_nan=1, n_pos_inf=2, n_neg_inf=3)
    assert [(special.sign, count(observed, special), count(None, special)) for special in Special] == [
        *((0, 1, 0), (1, 2, 0), (-1, 3, 0)),
    ]
