"""``python -m fairseq_plugins analysis <command>``: of models, checkpoints and all results."""

from collections.abc import Sequence

from fairseq_plugins.analysis.commands import COMMANDS as OF_MODELS
from fairseq_plugins.common.dispatch import Commands, dispatch

COMMANDS: Commands = {
    **OF_MODELS,
    "correlations": (
        "fairseq_plugins.cli.correlations",
        "properties of attention against performance: Table 5 of the BERT paper",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    program = "python -m fairseq_plugins analysis"
    return dispatch(program, "What positions do in a model.", COMMANDS, argv)
