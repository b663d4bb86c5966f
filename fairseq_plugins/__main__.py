"""``python -m fairseq_plugins <command>``."""

import sys
from collections.abc import Sequence

from fairseq_plugins.common.dispatch import Commands, dispatch

COMMANDS: Commands = {
    "encodings": ("fairseq_plugins.catalog", "the position encodings, and the options of one"),
    "doctor": ("fairseq_plugins.cli.doctor", "what is installed, and whether training can run"),
    "evaluate": ("fairseq_plugins.cli.evaluate", "the perplexity of a checkpoint, at any length"),
    "analysis": ("fairseq_plugins.cli.analysis", "what positions do: attention, figures, tables"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (default: the process's) begins with; its exit status."""
    return dispatch(
        "python -m fairseq_plugins",
        "Any position encoding under any attention, for fairseq.",
        COMMANDS,
        argv,
        epilog="`python -m fairseq_plugins <command> --help` shows a command's options. Training "
        "itself goes through fairseq: fairseq-train DATA --user-dir fairseq_plugins "
        "--task language_modeling --arch pe_transformer_lm ...",
    )


if __name__ == "__main__":
    sys.exit(main())
