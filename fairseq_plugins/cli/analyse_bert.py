"""Commands of `fairseq-pe analyse` that make the BERT paper's figures and its Table 5."""

import argparse
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_plugins.cli.analysis_options import (
    PICTURE,
    add_command,
    add_seed_and_device,
    labelled,
    write_analysis,
)
from fairseq_plugins.common.data_commands import typed_command
from fairseq_plugins.common.errors import OptionError, checkpoint_given_by
from fairseq_plugins.common.option_types import new_file
from fairseq_plugins.common.root import ROOT, data_folder, from_root, root_folder
from fairseq_plugins.data.options import check_at_least, check_folder
from fairseq_plugins.papers import PUBLISHED, SCALE_NAMES, TABLES
from fairseq_plugins.papers.bert import SEEDS
from fairseq_plugins.records.runs import Run, Study

if TYPE_CHECKING:
    from fairseq_plugins.papers.bert_figures import Model

SCALE = PUBLISHED  # of figure 5, unless --scale is given
NUMBERS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 11)
NEEDS = "scripts/bert_table2.sh, bert_table3.sh and bert_table4.sh"  # of Table 5
OF_RESULTS = 5
OF_OFFSETS = 6  # always shows all offsets of an encoding


def number(word: str) -> int:
    """Parse the number of a figure that this command makes."""
    if word == "7":
        raise argparse.ArgumentTypeError("7 needs training: run `fairseq-pe table bert_figure7`")
    return int(word)


def add_correlations(commands: Any) -> None:
    """Add the command of Table 5."""
    command = add_command(
        commands,
        "correlations",
        _correlations,
        "properties of attention against performance: Table 5 of the BERT paper",
        "Pearson correlations over embeddings between the properties of their "
        "attention and their performance, as Table 5 of the BERT paper: makes "
        "results/bert_table5/<scale>.md and .json from the results there are. Trains nothing.",
    )
    text = "scale of the results (default: every scale with results)"
    command.add_argument("--scale", choices=SCALE_NAMES, help=text)


def _correlations(args: argparse.Namespace) -> None:
    # Only now, because this imports PyTorch, which takes seconds.
    from fairseq_plugins.report.page import write_correlations_page

    scales = [args.scale] if args.scale else SCALE_NAMES
    pages = [page for scale in scales if (page := write_correlations_page(ROOT, scale))]
    if not pages:
        raise OptionError(
            f"--scale must have results of {NEEDS}, but none of {', '.join(scales)} has"
        )
    for page in pages:
        print(f"written: {page} and {page.with_suffix('.json').name}")


def add_figure(commands: Any) -> None:
    """Add the command of figures."""
    command = add_command(
        commands,
        "figure",
        _figure,
        "a figure of the BERT paper: PNG, SVG, its numbers as JSON, and a page",
        "A figure of 'On Position Embeddings in BERT'. 1, 3 and 6 need no training; 5 "
        "needs results of the tables; the others need checkpoints: your own (--checkpoint) or the "
        "tables' (--scale). 2 and 11 differ only in the models that --scale chooses, 8 compares "
        "checkpoints of one training, and 10 includes Table 7. Figure 7 needs a training of its "
        "own: `fairseq-pe table bert_figure7`.",
    )
    add = command.add_argument
    known = ", ".join(map(str, NUMBERS))
    add("number", type=number, choices=NUMBERS, metavar="N", help=f"number of the figure: {known}")
    add(
        "--checkpoint",
        action="append",
        default=[],
        metavar="[LABEL=]PATH",
        help="a checkpoint of pe_roberta, pe_transformer_lm or pe_transformer, or the folder of a "
        "published BERT or RoBERTa, of Hugging Face or from `fairseq-pe prepare start`; repeatable",
    )
    text = "data folder with the dictionaries: one for all checkpoints, or one for each in their "
    text += "order; not needed for folders of published models"
    add("--data", type=Path, action="append", default=[], metavar="DIR", help=text)
    text = f"path of the output files, without suffix, {PICTURE}"
    add("--output", type=new_file, metavar="STEM", help=text)
    text = "number of positions (default: 128, or the longest input of all models if shorter)"
    add("--length", type=int, metavar="T", help=text)
    text = "number of words to average over (default: 100, as in Appendix J)"
    add("--words", type=int, metavar="N", help=text)
    text = "use the tables' models in checkpoints/ at this scale, in place of --checkpoint; for "
    text += f"figure 5 their results (default there: {SCALE})"
    add("--scale", choices=SCALE_NAMES, help=text)
    add_seed_and_device(command)
    text = "draw the maps of this figure in results/ again from their JSON, which needs no model"
    add("--redraw", action="store_true", help=text)


def _figure(args: argparse.Namespace) -> None:
    check_at_least(4, length=args.length)
    check_at_least(1, words=args.words)
    if args.redraw:
        _redraw(args)
        return
    if args.length is not None and args.number in (OF_RESULTS, OF_OFFSETS):
        raise OptionError(f"--length must be left out with figure {args.number}")
    if args.number == OF_RESULTS:
        if args.checkpoint or args.data:
            raise OptionError(f"--checkpoint and --data must be left out with figure {OF_RESULTS}")
        _refuse_given(args, words=None, cpu=False, seed=1)
        args.scale = args.scale or SCALE
    with tempfile.TemporaryDirectory() as converted:
        asked = _checkpoints(args, Path(converted))
        if args.number == OF_RESULTS:
            title, paper, made = _of_results(args.scale)
        else:
            title, paper, made = _of_checkpoints(args, asked)
        name = args.scale or ("trained" if asked else "untrained")
        args.output = args.output or _folder(args.number) / name
        title = f"On Position Embeddings in BERT, Figure {args.number}: {title}"
        caption, models = f"**The paper found**: {paper}", {label: path for label, path, _ in asked}
        write_analysis(made, args, models, title=title, caption=caption)


def _refuse_given(args: argparse.Namespace, **defaults: Any) -> None:
    """Refuse options that a figure does not use, unless they have these defaults."""
    for name, default in defaults.items():
        if getattr(args, name) != default:
            raise OptionError(f"--{name} must be left out with figure {args.number}")


def _folder(number: int) -> Path:
    """Return the folder of a figure's results."""
    return ROOT / root_folder("results") / f"bert_figure{number}"


def _redraw(args: argparse.Namespace) -> None:
    for name in ("checkpoint", "data", "output", "length", "words", "scale"):
        if getattr(args, name):
            raise OptionError(f"--{name} must be left out with --redraw")
    from fairseq_plugins.analysis.bert_figures import redraw

    files = sorted(_folder(args.number).glob("*.json"))
    if not files:
        raise OptionError(f"--redraw must have a JSON in {from_root(_folder(args.number))}")
    for file in files:
        redraw(args.number, file)
        print(f"drawn: {from_root(file.with_suffix(''))}.png and .svg")


def _checkpoints(args: argparse.Namespace, converted: Path) -> list[tuple[str, Path, Path]]:
    """Return the label, file and data of each checkpoint; converted ones are put into a folder."""
    if args.scale and args.number != OF_RESULTS:
        if args.checkpoint or args.data:
            raise OptionError("--scale must be left out where --checkpoint is given")
        return _of_tables(args.number, args.scale)
    found = labelled(args.checkpoint)
    for label, path in found.items():
        if not path.exists():
            raise OptionError(
                f"--checkpoint must be an existing file or folder, but {label} is {path}"
            )
    published = {label: path for label, path in found.items() if path.is_dir()}
    of_files = len(found) - len(published)
    folders = args.data * of_files if len(args.data) == 1 and of_files else args.data
    if found and len(folders) != of_files:
        raise OptionError(
            f"--data must be given once, or once for each of {of_files} --checkpoint that are "
            f"files, but is given {len(folders)} times"
        )
    for folder in folders:
        check_folder(folder, "--data")
    data = iter(folders)
    return [
        (label, *_published(path, converted / str(index)))
        if label in published
        else (label, path, next(data))
        for index, (label, path) in enumerate(found.items())
    ]


def _published(folder: Path, converted: Path) -> tuple[Path, Path]:
    """Return the checkpoint of a published model's folder, converted if need be, and its data.

    Raises:
        ValueError: it is not the folder of a BERT or RoBERTa.
    """
    from fairseq_plugins.integrations.conversion import CHECKPOINT_FILE
    from fairseq_plugins.integrations.published import to_fairseq

    if not (folder / CHECKPOINT_FILE).is_file():
        converted.mkdir()
        with checkpoint_given_by("--checkpoint", "be a usable folder of Hugging Face"):
            to_fairseq(folder, converted, data_folder("gpt2_bpe"))
        folder = converted
    return folder / CHECKPOINT_FILE, folder


def _of_tables(number: int, scale: str) -> list[tuple[str, Path, Path]]:
    """Return the label, file and data of each checkpoint that the tables have trained.

    Missing ones are named and left out.

    Raises:
        OptionError: nothing is there, or the figure is not of the tables' models.
    """
    from fairseq_plugins.papers.bert_figures import FIGURE_MODELS

    if number not in FIGURE_MODELS:
        raise OptionError(f"--scale must be left out with figure {number}")
    found, missing = [], []
    for model in FIGURE_MODELS[number]:
        files = _left_by(model, scale)
        found += [(_label(model, file), file, _data_of(file)) for file in files]
        if not files:
            missing.append(_command(model, scale))
    if missing:
        print(
            "left out, to be trained by (a result that is here already stays):",
            *missing,
            sep="\n  ",
        )
    if not found:
        raise OptionError(f"figure {number} needs models of scale {scale}, and none is trained")
    return found


def _label(model: "Model", file: Path) -> str:
    """Return the title of a checkpoint's panel."""
    if model.study:
        return f"{_updates(file):,} updates"
    return f"{model.label}, {file.parent.name}" if model.parts else model.label


def _updates(file: Path) -> int:
    """Return the number of updates in the name of a checkpoint."""
    return int(file.stem.rpartition("_")[2])


def _command(model: "Model", scale: str) -> str:
    """Return the command that trains a figure's model, also where its result is there."""
    attention = "" if TABLES[model.table].attentions == (model.attention,) else model.attention
    words = [
        *(f"scripts/{model.table}.sh", "--scale", scale, "--rows", model.row),
        *(("--attention", attention) if attention else ()),
        *(("--keep", "tuned") if model.parts else ()),
        *(("--name", f"{scale}-{model.study}") if model.study else ()),
        *(word for setting in model.settings for word in ("--set", setting)),
        "--missing-checkpoints",
    ]
    return typed_command(shlex.join(words))


def _data_of(checkpoint: Path) -> Path:
    """Return the folder of its training data: in the data folder, else at its recorded path."""
    from fairseq_plugins.common.checkpoints import read_checkpoint

    with checkpoint_given_by("--scale", "have usable checkpoints"):
        recorded = Path(read_checkpoint(checkpoint)["cfg"]["task"]["data"])
    here = data_folder(recorded.name)
    return here if here.is_dir() else ROOT / recorded


def _left_by(model: "Model", scale: str) -> list[Path]:
    """Return the checkpoints of a figure's model, of the first seed that has any.

    Tables measure the best where there is one, else the last. Of a study's training some of those
    that it kept are taken.
    """
    from fairseq_plugins.common.checkpoints import BEST, LAST

    study = Study(f"{scale}-{model.study}") if model.study else None
    for seed in SEEDS:
        folder = ROOT / Run(model.table, scale, model.row, model.attention, seed, study).folder
        if study is not None:
            if kept := sorted(folder.glob("checkpoint_*_[0-9]*.pt"), key=_updates):
                return _on_the_way(kept)
            continue
        trained = sorted(folder.glob(model.parts)) if model.parts else [folder]
        files = [
            next((one / name for name in (BEST, LAST) if (one / name).is_file()), None)
            for one in trained
        ]
        if any(files):
            return [file for file in files if file]
    return []


def _on_the_way(kept: list[Path]) -> list[Path]:
    """Return a training's first and last checkpoint, and those after a quarter and a half."""
    places = (round(share * (len(kept) - 1)) for share in (0, 0.25, 0.5, 1))
    return [kept[place] for place in dict.fromkeys(places)]


def _of_checkpoints(
    args: argparse.Namespace, asked: list[tuple[str, Path, Path]]
) -> tuple[str, str, Any]:
    from fairseq_plugins.analysis.bert_figures import FIGURES, make_figure
    from fairseq_plugins.analysis.figure_inputs import APPENDIX_J, FigureSizes, trained
    from fairseq_plugins.analysis.loaded_stacks import load_stack

    figure = FIGURES[args.number]
    if (asked or args.data) and not figure.takes_inputs:
        raise OptionError(f"--checkpoint and --data must be left out with figure {args.number}")
    if not figure.takes_inputs:
        _refuse_given(args, words=None, cpu=False)
    if not asked and (args.data or not figure.untrained):
        why = "with --data" if figure.untrained else f"for figure {args.number}"
        raise OptionError(f"--checkpoint must be given {why}")
    with checkpoint_given_by("--checkpoint"):
        subjects = [trained(label, load_stack(*files, cpu=args.cpu)) for label, *files in asked]
    sizes = FigureSizes(args.length, args.words or APPENDIX_J, args.seed)
    return figure.title, figure.paper, make_figure(args.number, subjects, sizes)


def _of_results(scale: str) -> tuple[str, str, Any]:
    from fairseq_plugins.papers.bert_correlations import TABLES
    from fairseq_plugins.report.correlation_by_offset import (
        draw_by_offset,
        measure_by_offset,
        read_properties,
    )
    from fairseq_plugins.statistics.table_results import read_numbers

    found = read_numbers(ROOT, TABLES, scale).get(scale)
    cells = {} if found is None else found.cells
    made = draw_by_offset(measure_by_offset(read_properties(ROOT, scale), cells))
    paper = (
        "monotonicity within 20 to 55 offsets correlates most with span prediction, by more than "
        "0.9, and with some tasks of classification the other way round; direction balance "
        "correlates by more than 0.5 within few offsets, and less within more."
    )
    return "In which range of offsets properties correlate with performance", paper, made
