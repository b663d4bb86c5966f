"""Options, checkpoints and files that the commands of `fairseq-pe analyse` share."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.option_types import new_file, new_folder, number, parse_seed
from fairseq_plugins.common.pictures import FORMATS, save_for_print
from fairseq_plugins.common.provenance import command_line
from fairseq_plugins.common.root import from_root
from fairseq_plugins.data.options import check_file, check_folder

if TYPE_CHECKING:
    from fairseq_plugins.analysis.figure_files import RenderedFigure

PICTURES = Path("pictures")  # folder of output by default
OF_ANY = "checkpoint of any model of this package"
WITH_DICTIONARIES = "data folder with the dictionaries"
SPLIT, LENGTH = "test", 32
PICTURE = f"or one picture, whose name ends with {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], None],
    summary: str,
    description: str = "{}",
) -> argparse.ArgumentParser:
    """Add a command; `{}` in its description stands for the summary, capitalised."""
    about = description.format(f"{summary[0].upper()}{summary[1:]}")
    command: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=about)
    command.set_defaults(run=run)
    return command


def add_checkpoint(command: argparse.ArgumentParser, text: str = OF_ANY, data: str = "") -> None:
    """Add --path and --data, each with its help."""
    add = command.add_argument
    add("--path", type=Path, required=True, metavar="CHECKPOINT", help=text)
    add("--data", type=Path, required=True, metavar="DIR", help=data or WITH_DICTIONARIES)


def add_seed_and_device(command: argparse.ArgumentParser) -> None:
    """Add --seed and --cpu."""
    command.add_argument("--seed", type=parse_seed, default=1, help="random seed (default: 1)")
    text = "run on the CPU, even where there is a GPU"
    command.add_argument("--cpu", action="store_true", help=text)


def add_samples(command: argparse.ArgumentParser) -> None:
    """Add --split and --length, of the samples of a text."""
    add = command.add_argument
    add("--split", default=SPLIT, help=f"train, valid or test (default: {SPLIT})")
    text = f"tokens of a sample, or of a translation's sentences at most (default: {LENGTH})"
    add("--length", type=number("--length", 2), default=LENGTH, metavar="N", help=text)


def add_stem(command: argparse.ArgumentParser, name: str) -> None:
    """Add --output of `write_analysis`, by default pictures/<name>."""
    default = PICTURES / name
    text = f"path of the output files, without suffix, {PICTURE} (default: {default})"
    command.add_argument("--output", type=new_file, default=default, metavar="STEM", help=text)


def is_picture(path: Path) -> bool:
    """Return whether a path's ending is that of a picture."""
    return path.suffix.lower() in FORMATS


def folder_or_picture(text: str) -> Path:
    """Parse a folder, or the file of a picture."""
    return (new_file if is_picture(Path(text)) else new_folder)(text)


def check_checkpoint(args: argparse.Namespace) -> None:
    """Check that --path is a file and --data a folder."""
    check_file(args.path, "--path")
    check_folder(args.data, "--data")


def label_of(path: Path) -> str:
    """Return the name of a checkpoint's folder, or the file's if the path has none."""
    return path.parent.name or path.stem


def labelled(words: Sequence[str]) -> dict[str, Path]:
    """Return the path of each [LABEL=]PATH by its label, by default the name of its folder."""
    found = {}
    for word in words:
        label, equals, rest = word.partition("=")
        # A path that is there may have a `=` of its own.
        is_labelled = equals and not Path(word).exists()
        path = Path(rest) if is_labelled else Path(word)
        found[(label if is_labelled else "") or label_of(path)] = path
    if len(found) < len(words):
        raise OptionError("--checkpoint must have a LABEL of its own each time")
    return found


def describe_training(label: str, path: Path) -> str:
    """Describe a model and its training, as its checkpoint records them."""
    from fairseq_plugins.common.checkpoints import read_checkpoint

    state = read_checkpoint(path)
    model = state["cfg"]["model"]
    side = "encoder" if "encoder_layers" in model else "decoder"
    encoding = model["position_encoding"] + (
        f" ({model['position_encoding_options']})" if model["position_encoding_options"] else ""
    )
    return (
        f"{label}: `{model['_name']}`, {model[f'{side}_layers']} layers of "
        f"{model[f'{side}_embed_dim']} features, {model[f'{side}_attention_heads']} heads, "
        f"{encoding}; {_trained(state)}"
    )


def _trained(state: dict[str, Any]) -> str:
    """Describe data and length of the training; converted checkpoints do not record them."""
    cfg, history = state["cfg"], state.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates")
    if not updates:
        return "its checkpoint does not say how it was trained"
    length = cfg["task"].get("tokens_per_sample")
    words = [Path(cfg["task"]["data"]).name, f"{updates:,} updates"]
    words[-1] += f" of samples of {length}" if length else ""
    return ", ".join(filter(None, (*words, f"seed {cfg['common']['seed']}")))


def typed(args: argparse.Namespace) -> str:
    """Return the typed command, for pages that record it."""
    return command_line(["fairseq-pe", "analyse", *args.command_line])


def write_analysis(
    figure: "RenderedFigure",
    args: argparse.Namespace,
    models: Mapping[str, Path],
    *,
    title: str,
    caption: str,
) -> None:
    """Write a figure of models to --output, or its picture alone, and print the files.

    Its page has the typed command, and how the models were trained.
    """
    # Here, since this takes seconds, which --help must not.
    from fairseq_plugins.analysis.figure_files import write_figure

    stem = args.output
    if is_picture(stem):
        save_for_print(figure.picture, stem)
        print(f"written: {from_root(stem)}")
        return
    figure = replace(figure, models=[describe_training(*one) for one in models.items()])
    write_figure(figure, stem, title=title, caption=caption, command=typed(args))
    print(f"written: {from_root(stem)}.png, .svg, .json and .md")
