"""The command line of the catalogue."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.common.exit_status import exit_status
from fairseq_plugins.common.files import write_text
from fairseq_plugins.common.parser import Parser

# The keys of attention.ATTENTIONS, repeated here so that --help does not import PyTorch.
ATTENTIONS = ("vanilla", "linear")
DIRECTIONS = ("causal", "bidirectional", "cross")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table or one encoding, or write the page.

    Returns:
        The exit status: 2 for an unknown name, 1 for a page that cannot be written, else 0.
    """
    parser = get_parser()
    arguments = parser.parse_args(argv)
    filters = arguments.attention, arguments.direction
    if arguments.kernels and (arguments.name or arguments.markdown or arguments.write):
        parser.error("--kernels cannot be combined with NAME, --markdown or --write")
    if arguments.name and (arguments.markdown or arguments.write or any(filters)):
        parser.error("NAME cannot be combined with options")
    if arguments.write and (arguments.markdown or any(filters)):
        parser.error("--write cannot be combined with other options: it writes the whole page")
    from fairseq_plugins.catalog.kernels import kernel_table
    from fairseq_plugins.catalog.page import markdown_table, page
    from fairseq_plugins.catalog.text import details, select, table

    if arguments.write:
        return exit_status(arguments.program, lambda: write_text(arguments.write, page()))
    try:
        if arguments.name:
            print(details(arguments.name))
        elif arguments.kernels:
            print(kernel_table(select(*filters)))
        else:
            show = markdown_table if arguments.markdown else table
            print(show(select(*filters)))
    except ValueError as error:
        parser.error(str(error))
    return 0


def get_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe encodings",
        description="The position encodings: all of them in a table, or everything about one.",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="describe this encoding, or several: base+alibi"
    )
    parser.add_argument("--attention", choices=ATTENTIONS, help="only encodings of this attention")
    parser.add_argument("--direction", choices=DIRECTIONS, help="only encodings of this direction")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="print the attention kernels by encoding and device, in Markdown",
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the page docs/encodings.md to FILE"
    )
    return parser
