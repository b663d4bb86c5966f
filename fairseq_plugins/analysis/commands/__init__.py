"""The commands of this room, a module each, with the `main(argv)` that runs it."""

from fairseq_plugins.common.dispatch import Commands

COMMANDS: Commands = {
    "identical-words": (
        "fairseq_plugins.analysis.commands.identical_words",
        "properties of a checkpoint's attention to sentences that repeat a word",
    ),
}
