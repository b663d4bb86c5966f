"""Options of the commands that make tables, and the study that they describe."""

import argparse
import re
from pathlib import Path
from typing import get_args

from fairseq_plugins.common.option_types import factors, number, seeds, words
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.common.root import add_folder_options
from fairseq_plugins.papers import PAPERS, SCALE_NAMES, TABLES
from fairseq_plugins.papers.tables import Table
from fairseq_plugins.runner.run_options import Retention, Stage

# A figure with a script of its own shares the runs of its table.
SCRIPTS = TABLES | {f.name: table for table in TABLES.values() for f in table.figures if f.name}
# Settings that `--set` must not change, since the table sets them by its rows and other options.
# Whole sections are refused, since they contain such settings.
RESERVED = re.compile(
    r"model|model\.(((en|de)coder_)?position_encoding|(\w+_)?attention_type)"
    r"|scale(/\w+)?|run|common(\.(seed|cpu))?"
    r"|checkpoint(\.(save_dir|restore_file|finetune_from_model))?|task(\.data)?"
    r"|distributed_training(\..*)?"
)
_PAGES = (".md", ".json", ".png", ".svg")
TRACKERS = ("tensorboard", "wandb")

_MAX_RUNNING = "with --slurm: jobs of this submission that train at once (default: no limit)"
TFLOPS = 40.0  # of a V100, a third of its peak in half precision


def study_name(text: str) -> str:
    """Parse the name of a study, which is that of a folder beside those of the scales."""
    is_word = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", text, re.ASCII)
    if not is_word or text in SCALE_NAMES or Path(text).suffix in _PAGES:
        raise argparse.ArgumentTypeError(
            "`--name` must be a word of letters, digits, '-', '_' and '.', and no scale "
            f"({', '.join(SCALE_NAMES)}) or page's name ({', '.join(_PAGES)}), but is {text!r}."
        )
    return text


def setting(text: str) -> str:
    """Parse key=value in Hydra's syntax, of a key that users may set."""
    match = re.fullmatch(r"\+{0,2}([\w/.]+)=(.*)", text, re.DOTALL)
    if match is None:
        raise argparse.ArgumentTypeError(f"`--set` must be like key=value, but is {text!r}.")
    if RESERVED.fullmatch(match[1]):
        raise argparse.ArgumentTypeError(
            f"`--set` must leave {match[1]} to the table, which sets it by its rows and other "
            f"options (--rows, --attention, --seeds, --scale, --gpus, --data), but is {text!r}."
        )
    if match[1] == "model.init_from" and Path(match[2].strip("'\"")).is_absolute():
        raise argparse.ArgumentTypeError(
            "`--set` must give model.init_from a path relative to the working folder, since "
            f"results record no absolute paths, but is {text!r}."
        )
    return text


def _default_rows(table: Table) -> str:
    if table.evaluate_only:
        return "those whose model is in checkpoints/; a named one is trained first"
    others = ", and every other encoding" if table.takes_any_encoding else ""
    return f"the paper's{others}"


def get_parser(name: str) -> Parser:
    """Return the parser of the command of a table or figure."""
    table = SCRIPTS[name]
    drawn = "".join(f", and draws {one}/<scale>.png" for one in _figure_folders(table))
    does = "Measures" if table.evaluate_only else "Trains and evaluates"
    parser = Parser(
        prog=f"fairseq-pe table {name}",
        description=f"{table.source}: {table.title}. {does} every row that is not "
        f"done, and renders results/{table.name}/<scale>.md{drawn}.",
        epilog="Rows that are done are skipped, interrupted ones resume from their last intact "
        "checkpoint. Exit status: 0 all done, 1 a row failed, 2 nothing was started, 130 Ctrl-C.",
    )
    _add_cells(parser, table)
    _add_machines(parser)
    _add_actions(parser)
    _add_study(parser, table)
    add_folder_options(parser)
    return parser


def _figure_folders(table: Table) -> list[str]:
    """Return the folders of a table's figures that have pages of their own."""
    return [f"results/{figure.name}" for figure in table.figures if figure.name]


def _add_cells(parser: Parser, table: Table) -> None:
    """Add the options that choose scale, rows, attentions, seeds, lengths and start."""
    add = parser.add_argument
    text = "model and data sizes (default: mini, for a CPU; with --name the study's)"
    add("--scale", choices=SCALE_NAMES, help=text)
    text = "rows: encodings, files in configs/model, or `paper` for the paper's own rows "
    text += f"(default: {_default_rows(table)})"
    add("--rows", type=words("--rows"), metavar="A,B", help=text)
    known, default = [*table.attentions, *table.extra_attentions], [*table.attentions]
    kind, text = words("--attention", known), f"attentions, among {', '.join(known)} "
    text += f"(default: {','.join(default)})"
    add("--attention", type=kind, default=default, metavar="A,B", help=text)
    several = ",".join(map(str, table.seeds))
    text = "1" if len(table.seeds) == 1 else f"{several} at scale paper, else 1"
    add("--seeds", type=seeds, metavar="1,2", help=f"random seeds (default: {text})")
    if table.lengths:
        text = "lengths to evaluate, in multiples of the training length; done ones stay "
        text += f"(default: {','.join(f'{factor}x' for factor in table.lengths)})"
        add("--lengths", type=factors, default=(), metavar="1x,2x", help=text)
    if table.average_of:
        text = "fine-tune the tasks that finished runs lack; their other scores stay"
        add("--missing-tasks", action="store_true", help=text)
    if table.may_start_published:
        text = "start from a published model, a checkpoint that `fairseq-pe prepare start` or "
        text += "`fairseq-pe convert` makes (default at scale published: "
        text += "checkpoints/start/model.pt; elsewhere what scripts/bert_start.sh trains)"
        add("--start", type=Path, metavar="FILE", help=text)
    else:
        parser.set_defaults(start=None)


def _add_machines(parser: Parser) -> None:
    """Add the options of GPUs, runs at once, checkpoints and Slurm."""
    add = parser.add_argument
    text = "GPUs of one run; the total batch stays the same (default: 8 at scale paper, "
    add("--gpus", type=int, metavar="N", help=f"{text}1 at small, else 0, a CPU)")
    text = (
        "runs side by side, each with its share of the CPU's threads and --gpus GPUs of its "
        "own; more runs of one GPU than there are GPUs share them (default: 1 with GPUs, else "
        "OMP_NUM_THREADS or the number of cores); with --slurm runs in one job"
    )
    add("--jobs", type=int, metavar="N", help=text)
    text = (
        "checkpoints to keep after evaluation (default: as when the run was begun, else all): "
        "all: all but fine-tuned ones; last: the evaluated one and "
        "the last; best: the evaluated one; tuned: the evaluated one, also of every fine-tuning. "
        "Tables that start from a run need the evaluated one only"
    )
    add("--keep", choices=get_args(Retention), help=text)
    add(
        "--slurm",
        action="store_true",
        help="submit a job for each run with sbatch, after the run that it starts from, and a job "
        "that makes the page (see SBATCH_* in its manual for partition, account, time and memory, "
        "and SBATCH_CPUS_PER_GPU for other than 4 CPUs a GPU)",
    )
    add("--max-running", type=number("--max-running", 0), default=0, metavar="N", help=_MAX_RUNNING)
    # For such jobs only:
    add("--srun", action="store_true", help=argparse.SUPPRESS)
    add("--stage", choices=get_args(Stage), default="all", help=argparse.SUPPRESS)
    add("--runs", type=words("--runs"), help=argparse.SUPPRESS)


def _add_actions(parser: Parser) -> None:
    """Add the options that choose between training, rendering and printing."""
    add = parser.add_argument
    add("--dry-run", action="store_true", help="print the commands and do nothing")
    add("--render", action="store_true", help="only make the page from existing results")
    add("--phases", action="store_true", help="print how long each phase of the trained runs took")
    add("--force", action="store_true", help="repeat runs that are done")
    text = "train rows again whose checkpoint is missing, as in a new clone; their results stay, "
    text += "and the new numbers are printed"
    add("--missing-checkpoints", action="store_true", help=text)
    text = "train the published runs again, into results/local"
    add("--rerun", action="store_true", help=text)
    text = "show each run's loss in TensorBoard (below outputs/tensorboard) or Weights & Biases"
    add("--log", choices=TRACKERS, help=text)


def get_paper_parser() -> Parser:
    """Return the parser of the command that makes all tables of a paper."""
    parser = Parser(
        prog="fairseq-pe table paper",
        description="Every table and figure of a paper: what is not done is trained, measured and "
        "rendered, here one table after the other, with --slurm as jobs that depend on each other.",
        epilog="Submitting again submits what is neither done nor in the queue. Status of all "
        "runs: fairseq-pe status",
    )
    add = parser.add_argument
    add("--paper", choices=[*PAPERS], default="lrpe", help="the paper (default: lrpe)")
    text = "model and data sizes (default: mini, for a CPU)"
    add("--scale", choices=SCALE_NAMES, default="mini", help=text)
    text = "rows of all tables (default: each table's)"
    add("--rows", type=words("--rows"), metavar="A,B", help=text)
    add("--seeds", type=seeds, metavar="1,2", help="random seeds (default: each table's)")
    add("--gpus", type=int, metavar="N", help="GPUs of one run (default: each table's)")
    add("--slurm", action="store_true", help="submit everything with sbatch")
    add("--jobs", type=int, default=1, metavar="N", help="with --slurm: runs in one job")
    add("--max-running", type=number("--max-running", 0), default=0, metavar="N", help=_MAX_RUNNING)
    text = "checkpoints to keep, as for a table"
    add("--keep", choices=get_args(Retention), help=text)
    text = "speed of a GPU in 10^12 operations a second, to estimate GPU-hours (default: 40)"
    add("--tflops", type=float, default=TFLOPS, metavar="X", help=text)
    add("--dry-run", action="store_true", help="print the plan and its cost, and do nothing")
    return parser


def _add_study(parser: argparse.ArgumentParser, table: Table) -> None:
    places = [f"results/{table.name}", *_figure_folders(table)]
    own = parser.add_argument_group(
        "custom data, budget and settings",
        "With any of these <name> takes the place of <scale>, beside the published results: "
        f"{', '.join(f'{place}/<name>' for place in places)}.",
    )
    own.add_argument(
        "--name", type=study_name, metavar="WORD", help="name of the results' folder (default: own)"
    )
    text = "train and evaluate on this folder, made by `fairseq-pe prepare`"
    own.add_argument("--data", type=Path, metavar="DIR", help=text)
    own.add_argument(
        "--updates", type=number("--updates", 1), metavar="N", help="updates of each training"
    )
    own.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the recipe in Hydra's syntax, as model.decoder_layers=4; repeatable",
    )
