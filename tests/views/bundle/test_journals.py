from __future__ import annotations

from pathlib import Path

from aoti_debug.base.abi import Phase
from aoti_debug.runs.rundir.formats import journal, journal_records
from aoti_debug.views.report import redaction
from aoti_debug.views.report.redaction import RedactedPart, Redaction
from tests.factories import JournalWriter, records_of, statistics, tensor


def test_statistics_of_a_replay_are_left_out(tmp_path: Path) -> None:
    x = tensor(2, 2).layout
    writer = JournalWriter(level=2)
    writer.tensor_stats(3, 1, Phase.AFTER, statistics(max=12345.0), values=b"\7" * 16, layout=x, replay=(5, 6))
    path = tmp_path / "journal.bin"
    path.write_bytes(redaction.redact_journal(writer.bytes(), Redaction(frozenset({RedactedPart.TENSORS})), ()))
    (record,) = records_of(journal.read(path))
    assert isinstance(record, journal_records.TensorStats)
    assert (record.replay, record.begun, record.key.launch, record.layout) == (5, 6, 3, x)
    assert (record.statistics, record.hash, record.values) == (None, None, b"")
    assert record.reason == "not in this bundle"[:16]  # it has the room of the values
