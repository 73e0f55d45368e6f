from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.abi import Phase
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.rundir.formats import journal, journal_records
from aoti_debug.views import redaction
from aoti_debug.views.redaction import LEFT_OUT, NO_REDACTION, RedactedPart, Redaction, redaction_for
from tests.factories import JournalWriter, records_of, statistics, tensor
from tests.views.report.subjects import FINDING, MODEL_LINE, SECRETS, SOURCE, STACK, manifest

NUMBERS = Redaction(frozenset({RedactedPart.TENSORS}))
TEXTS = redaction_for({RedactedPart.SOURCE}, [manifest()], FINDING)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("element 64010 of 64000, 10 past the end", "element # of #, # past the end"),
        ("noticed in launch 0.3 cpp_fused_mul_0", "noticed in launch 0.3 cpp_fused_mul_0"),
        ("buf3[17] is -2.5e-3, at 0x7fff01", "buf3[#] is #, at #"),
        ("index=5; size=4.", "index=#; size=#"),
        ("3 NaN in buf12", "# NaN in buf12"),
        ("in f at /usr/lib/12/vec.h:609 (address 0x5b)", "in f at /usr/lib/12/vec.h:609 (address #)"),
        ("wrapper.cpp:963 read 5/64010", "wrapper.cpp:963 read #/#"),
        ("aten.addmm.out of float32[8,32]", "aten.addmm.out of float32[#,#]"),
    ],
)
def test_numbers_are_left_out_and_names_stay(said: str, shown: str) -> None:
    assert NUMBERS.redact(said) == shown


@pytest.mark.parametrize(
    "said",
    [
        f"in the kernel's line: {MODEL_LINE}",
        f"IndexError\n{STACK}",
        "tmp0 = tl.load(in_ptr0 + x0)",
        "the call f(x) failed",
        "it is p->next",
        SOURCE.splitlines()[1].strip(),
    ],
)
def test_source_is_left_out(said: str) -> None:
    shown = TEXTS.redact(said)
    for secret in ("secret", "tl.load", "f(x)", "p->next"):
        assert secret not in shown


def test_ordinary_sentences_stay() -> None:
    for said in (
        "out-of-bounds load from l_table: element 64010 of 64000; returned 0",
        "mylib::op.default returned error code 1",
    ):
        assert TEXTS.redact(said) == said
    assert TEXTS.redact("f(x)") == LEFT_OUT


def test_nothing_withheld_changes_nothing() -> None:
    assert redaction_for((), [manifest()], FINDING) is NO_REDACTION
    assert NO_REDACTION.redact_finding(FINDING) == FINDING
    assert NO_REDACTION.redact(STACK) == STACK


def test_a_finding_without_values() -> None:
    text = str(findings.to_json(NUMBERS.redact_finding(FINDING)))
    assert not any(secret in text for secret in SECRETS)
    assert MODEL_LINE in text
    assert "cpp_fused_mul_0" in text


def test_a_finding_without_source() -> None:
    text = str(findings.to_json(TEXTS.redact_finding(FINDING)))
    assert "secret_table" not in text
    assert "314159" in text
    assert "model.py" in text


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
