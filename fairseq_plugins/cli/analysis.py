"""``python -m fairseq_plugins analysis <command>``: of encodings, models and all results."""

from collections.abc import Sequence

from fairseq_plugins.analysis.__main__ import COMMANDS as OF_MODELS
from fairseq_plugins.analysis.__main__ import main as run
from fairseq_plugins.cli import correlations, figure

COMMANDS = (*OF_MODELS, correlations, figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    return run(argv, COMMANDS)
