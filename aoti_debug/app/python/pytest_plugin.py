"""The pytest plugin: `pytest --aoti-debug` records the packages of each test, and looks into those of tests that fail.

Without the option it does nothing, and nothing else is imported.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aoti_debug.app.python.record import RecordedBlock

_SECTION = "aoti-debug"
_TRIAGES = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("aoti-debug", "AOTInductor packages that tests load")
    group.addoption(
        "--aoti-debug",
        action="store_true",
        help="record the packages that tests compile or load; of a test that fails, the call in question is triaged",
    )
    group.addoption(
        "--aoti-debug-triages",
        metavar="N",
        type=int,
        default=_TRIAGES,
        help=f"how many failed tests to triage (default {_TRIAGES}); of the others the run and the inputs are kept",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepares the recording, if it was asked for."""
    if config.getoption("--aoti-debug"):
        with _usage_errors():
            recorder = _Recorder(config.getoption("--aoti-debug-triages"))
        config.pluginmanager.register(recorder, "aoti-debug-recorder")


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Lets pytest say what is wrong with an option or a variable, without a traceback."""
    from aoti_debug.base.errors import UsageError

    try:
        yield
    except UsageError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        raise pytest.UsageError(f"--aoti-debug: {error}{hint}") from error


class _Recorder:
    """Records each phase of each test: its fixtures, itself, and their end.

    Args:
        triages: how many failed tests are triaged.
    """

    def __init__(self, triages: int) -> None:
        from aoti_debug.app.python import record

        self._record = record.record
        self._triages = triages
        self._phase: RecordedBlock | None = None
        record.watch_operators()
        self._session = self._new_block()  # for what is loaded outside of tests, which tests may call

    def _new_block(self) -> RecordedBlock:
        return self._record(keep_inputs=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        with _usage_errors():
            self._session.__enter__()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._session.__exit__(None, None, None)
        if not _is_bad(self._session):
            self._session.remove()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        return (yield from self._recorded())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        return (yield from self._recorded())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        return (yield from self._recorded())

    def _recorded(self) -> Generator[None, Any, Any]:
        self._phase = self._new_block()
        with self._phase:
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Says in the report what was recorded; nothing is kept of a phase that passed without a finding."""
        report = yield
        block, self._phase = self._phase, None
        if block is None or not block.runs:
            return report
        if not report.failed and not _is_bad(block):
            block.remove()
            return report
        triage = self._triage(block) if report.failed else []  # its run is then the newest
        report.sections.append((_SECTION, "\n".join([*str(block).splitlines(), *triage])))
        return report

    def _triage(self, block: RecordedBlock) -> list[str]:
        """The triage of the call that failed, or else of the last one of each model, as lines."""
        if self._triages <= 0 or block.call is None:
            return []
        self._triages -= 1
        from aoti_debug.app.python.procedures import triage
        from aoti_debug.base.errors import AotiDebugError

        try:
            found = triage(block)
        except AotiDebugError as error:
            hint = [f"hint: {error.hint}"] if error.hint else []
            return ["", f"no triage: {error}", *hint]
        call = "the last call of each model" if block.call.others else f"call {block.call.number}"
        return ["", f"triage of {call}: {found.directory.path}", *str(found).splitlines()]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Lists the tests that passed although a package returned what is not finite, or had a fault."""
        passed = [report for report in terminalreporter.stats.get("passed", ()) if _section(report)]
        if not passed:
            return
        terminalreporter.section("aoti-debug: findings in tests that passed")
        for report in passed:
            terminalreporter.line(report.nodeid)
            for line in _section(report).splitlines():
                terminalreporter.line(f"  {line}")


def _is_bad(block: RecordedBlock) -> bool:
    return block.finding is not None and block.finding.kind.is_fault


def _section(report: Any) -> str:
    return next((text for title, text in report.sections if title == _SECTION), "")
