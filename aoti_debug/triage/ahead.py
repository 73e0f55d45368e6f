"""Work of a triage that is begun before it is known to be needed."""

from __future__ import annotations

import contextlib
from pathlib import Path

from aoti_debug.compare.run_worker import LOG, EvaluationProcess


class Ahead:
    """A process that prepares to evaluate the program while the model runs.

    Attributes:
        evaluation: the process; None if none was started.
    """

    def __init__(self) -> None:
        self.evaluation: EvaluationProcess | None = None

    def prepare_evaluation(self, device: str, folder: Path) -> None:
        """Starts the process; where it does not start, there is none.

        Args:
            folder: for its output.
        """
        with contextlib.suppress(OSError):
            self.evaluation = EvaluationProcess(device, folder / LOG)

    def close(self) -> None:
        """Ends the process if it is still there."""
        evaluation, self.evaluation = self.evaluation, None
        if evaluation is not None:
            evaluation.close()
