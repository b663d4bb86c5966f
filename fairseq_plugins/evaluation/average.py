"""Average of the last checkpoints of a training, as is usual in translation.

python -m fairseq_plugins.evaluation.average FOLDER --last 5 --output FOLDER/average.pt
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import CheckpointError, OptionError, checkpoint_given_by
from fairseq_plugins.common.exit_status import command
from fairseq_plugins.common.files import writing
from fairseq_plugins.common.parser import Parser
from fairseq_plugins.data.options import check_folder

_INTERVAL = re.compile(r"checkpoint_(\d+)_(\d+)\.pt")  # epoch, updates
_EPOCH = re.compile(r"checkpoint(\d+)\.pt")


def last_checkpoints(folder: Path, count: int) -> list[Path]:
    """Find the last ``count`` checkpoints of a training, the oldest first.

    fairseq writes checkpoints by updates, by epochs, and checkpoint_last.pt; of several with the
    same number of updates one counts.

    Raises:
        OptionError: there are fewer.
        CheckpointError: a checkpoint without its number of updates.
    """
    from fairseq_plugins.common.checkpoints import LAST, read_updates

    if count < 2:
        raise OptionError(f"`--last` must be at least 2, but is {count} instead.")
    found = {int(m[2]): p for p in folder.glob("*.pt") if (m := _INTERVAL.fullmatch(p.name))}
    epochs = {int(m[1]): p for p in folder.glob("*.pt") if (m := _EPOCH.fullmatch(p.name))}
    for path in [*(epochs[epoch] for epoch in sorted(epochs)[-count:]), folder / LAST]:
        if path.is_file():
            found.setdefault(read_updates(path), path)
    if len(found) < count:
        raise OptionError(
            f"`--last` must be at most the {len(found)} checkpoints in {folder}, but is {count} "
            "instead; checkpoint.keep_interval_updates and checkpoint.keep_last_epochs keep more."
        )
    return [found[updates] for updates in sorted(found)[-count:]]


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the last path's checkpoint with the mean of all weights, computed in float32.

    Raises:
        CheckpointError: the checkpoints are of different models, or weights do not fit the model.
    """
    import torch

    import fairseq_plugins.registration  # noqa: F401  (model options)
    from fairseq_plugins.common.checkpoints import read_checkpoint
    from fairseq_plugins.modules.fitting import require_fit
    from fairseq_plugins.modules.identity import MODELS, describe_checkpoint, differences
    from fairseq_plugins.modules.loading import require_names

    state: dict[str, Any] = {}
    models = []
    sums: dict[str, torch.Tensor] = {}
    for path in paths:
        state = read_checkpoint(path)
        require_names(path, state, MODELS)
        require_fit(path, state)
        models.append(describe_checkpoint(path, state))
        if found := differences(models[0], models[-1]):
            raise CheckpointError(
                f"{path} is of another model than {paths[0]}: it has {found[0].asks}, the other "
                f"{found[0].has}"
            )
        weights = state["model"]
        if sums and {n: w.shape for n, w in weights.items()} != {
            n: w.shape for n, w in sums.items()
        }:
            raise CheckpointError(f"{path} has other weights than {paths[0]}")
        for name, weight in weights.items():
            if weight.is_floating_point():
                sums[name] = sums[name] + weight.float() if name in sums else weight.float()
            else:
                sums[name] = weight
    for name, total in sums.items():
        kind = state["model"][name].dtype
        mean = total / len(paths) if total.is_floating_point() else total
        state["model"][name] = mean.to(kind)
    return state


def get_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(
        prog="fairseq-pe average",
        description="Average a training's last checkpoints into one checkpoint.",
    )
    text = "with checkpoint_<epoch>_<updates>.pt, checkpoint<epoch>.pt and checkpoint_last.pt"
    parser.add_argument("folder", type=Path, metavar="FOLDER", help=text)
    parser.add_argument("--last", type=int, default=5, metavar="N", help="(default: 5)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="(default: FOLDER/average.pt)")
    return parser


def run(args: argparse.Namespace) -> None:
    """Average the last checkpoints and print which they are."""
    import torch

    check_folder(args.folder, "FOLDER")
    output = args.output or args.folder / "average.pt"
    with checkpoint_given_by("FOLDER", "hold usable checkpoints"):
        paths = last_checkpoints(args.folder, args.last)
        state = average(paths)
        with writing(output) as (file,):
            torch.save(state, file)
    print(f"{output}: the mean of {', '.join(path.name for path in paths)}")


main = command(get_parser, run)

if __name__ == "__main__":
    sys.exit(main())
