"""`python -m fairseq_plugins.analysis identical-words --path CHECKPOINT --data DIR`."""

import sys
from collections.abc import Sequence

from fairseq_plugins.analysis.commands import COMMANDS
from fairseq_plugins.common.dispatch import dispatch


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    program = "python -m fairseq_plugins.analysis"
    return dispatch(program, "What a trained model attends to.", COMMANDS, arguments)


if __name__ == "__main__":
    sys.exit(main())
