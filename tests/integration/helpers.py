"""fairseq's own commands, run inside this process on a tiny model; options as one table.

The same options render as flags of ``fairseq-train`` and as YAML and overrides of
``fairseq-hydra-train``, so that the two routes are given the same by construction.
"""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm, generate, hydra_train, interactive, train, validate
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

import fairseq_plugins.registration  # noqa: F401  (--user-dir finds the package imported already)

REPOSITORY = Path(__file__).parents[2]
USER_DIR = str(REPOSITORY / "fairseq_plugins")
TOKENS_PER_SAMPLE = 16

Options = Mapping[str, Any]

_COMPONENTS = {
    "task": "language_modeling",
    "model": "pe_transformer_lm",
    "criterion": "cross_entropy",
    "optimizer": "adam",
    "lr_scheduler": "fixed",
}

# What Hydra's command line may override has to stand in the YAML.
ENCODING_DEFAULTS: Options = {
    "model.attention_type": "vanilla",
    "model.position_encoding": "base",
    "model.position_encoding_options": "",
    "model.feature_map": "elu",
    "model.linear_normalizer": "clamped",
    "model.min_cosine": 0.2,
    "model.linear_epsilon": 1e-6,
    "model.linear_output_norm": "layer_norm",
    "model.no_token_positional_embeddings": False,
}

TINY: Options = {
    "common.user_dir": USER_DIR,
    "common.cpu": True,
    "common.seed": 1,
    "common.no_progress_bar": True,
    "common.log_format": "json",
    "common.log_interval": 1,
    "task.tokens_per_sample": TOKENS_PER_SAMPLE,
    "model.decoder_layers": 2,
    "model.decoder_embed_dim": 32,
    "model.decoder_input_dim": 32,
    "model.decoder_output_dim": 32,
    "model.decoder_ffn_embed_dim": 32,
    "model.decoder_attention_heads": 4,
    "model.share_decoder_input_output_embed": True,
    "model.dropout": 0.0,
    "dataset.batch_size": 4,
    "dataset.num_workers": 0,
    "dataset.disable_validation": True,
    "distributed_training.distributed_world_size": 1,  # else as many as there are GPUs
    "optimization.lr": [0.01],
    "optimization.max_update": 3,
    # Every update leaves a checkpoint: its meters hold the loss unrounded, as no log does.
    "checkpoint.save_interval_updates": 1,
}


def flags(settings: Options) -> list[str]:
    """``fairseq-train``'s command line; ``task._name`` and its like replace a component."""
    words = []
    for part, default in _COMPONENTS.items():
        option = "arch" if part == "model" else part.replace("_", "-")
        words += [f"--{option}", settings.get(f"{part}._name", default)]
    for key, value in settings.items():
        name = key.split(".")[1]
        if name == "_name":
            continue
        if name == "data":
            words.insert(0, str(value))
        elif value is True:
            words.append("--" + name.replace("_", "-"))
        elif value is not False:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += ["--" + name.replace("_", "-"), text]
    return words


def saving_to(folder: Path, data: Path, **model: Any) -> dict[str, Any]:
    """Tiny settings that train on ``data`` and save to ``folder``, with options of the model."""
    named = {f"model.{name}": value for name, value in model.items()}
    return {**TINY, "task.data": data, "checkpoint.save_dir": folder, **named}


def write_yaml(path: Path, settings: Options) -> Path:
    """A primary config of ``fairseq-hydra-train``."""
    config = OmegaConf.create({part: {"_name": name} for part, name in _COMPONENTS.items()})
    for key, value in settings.items():
        OmegaConf.update(config, key, str(value) if isinstance(value, Path) else value)
    hydra = {"job": {"chdir": False}, "run": {"dir": str(path.parent / "hydra")}}
    config = OmegaConf.merge(config, {"hydra": hydra})
    path.write_text(OmegaConf.to_yaml(config), encoding="utf-8")
    return path


def overrides(settings: Options) -> list[str]:
    """Hydra's words for settings, quoted as Hydra wants them."""
    return [f"{key}={_quoted(value)}" for key, value in settings.items()]


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, (str, Path)) else str(value).lower()


def fairseq_train(settings: Options) -> None:
    """``fairseq-train`` with these settings."""
    with _command("fairseq-train", flags(settings)):
        train.cli_main()


def fairseq_hydra_train(folder: Path, yaml: Options, *words: str) -> None:
    """``fairseq-hydra-train`` with settings in YAML and these words on the line."""
    folder.mkdir(parents=True, exist_ok=True)
    hydra_train_config(write_yaml(folder / "tiny_lm.yaml", yaml), *words)


def hydra_train_config(config: Path, *words: str) -> None:
    """``fairseq-hydra-train`` with a primary config and these words on the line."""
    words = ("--config-dir", str(config.parent), "--config-name", config.stem, *words)
    with _command("fairseq-hydra-train", words):
        hydra_train.cli_main()


def train_composed(config: DictConfig) -> None:
    """What ``fairseq-hydra-train`` does with a configuration once Hydra has composed it."""
    with _command("fairseq-hydra-train", ()):
        hydra_train._hydra_main(config)


class Built(Exception):
    """Training is about to begin, with this config and model."""

    def __init__(self, config: DictConfig, model: torch.nn.Module) -> None:
        super().__init__("training would begin now")
        self.config, self.model = config, model


@contextmanager
def stopping_before_training() -> Iterator[pytest.ExceptionInfo[Built]]:
    """Run a training command as far as its model; what it built is the value's."""

    def trainer(config: DictConfig, task: Any, model: torch.nn.Module, *_: Any) -> None:
        raise Built(config, model)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Built) as built:
        patch.setattr(train, "Trainer", trainer)
        patch.setenv("HYDRA_FULL_ERROR", "1")  # raise, instead of printing and leaving
        yield built


@contextmanager
def _command(name: str, words: Iterable[str]) -> Iterator[None]:
    """A command line, and fairseq's, Hydra's and logging's global state as in a new process."""
    argv, handlers, level = sys.argv, logging.root.handlers[:], logging.root.level
    sys.argv = [name, *words]
    GlobalHydra.instance().clear()
    if hasattr(checkpoint_utils.save_checkpoint, "best"):
        del checkpoint_utils.save_checkpoint.best
    try:
        yield
    finally:
        sys.argv, logging.root.handlers = argv, handlers
        logging.root.setLevel(level)
        GlobalHydra.instance().clear()


@contextmanager
def logged_by_fairseq() -> Iterator[list[str]]:
    """What fairseq says meanwhile, whatever commands have done to the handlers of the root."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("fairseq")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def load_checkpoint(path: Path) -> dict[str, Any]:
    return torch.load(path, map_location="cpu", weights_only=True)


def losses(save_dir: Path) -> dict[int, float]:
    """The unrounded training loss of each update that left a checkpoint."""
    result = {}
    for path in save_dir.glob("checkpoint*.pt"):
        state = load_checkpoint(path)
        meters = state["extra_state"]["metrics"]["train"]
        (loss,) = [meter["val"] for _, name, _, meter in meters if name == "loss"]
        result[state["optimizer_history"][-1]["num_updates"]] = float(loss)
    return dict(sorted(result.items()))


def fairseq_eval_lm(data: Path, checkpoint: Path, *words: str) -> dict[str, float]:
    """``fairseq-eval-lm`` on the validation set: loss in bits, perplexity."""
    arguments = _evaluation_words(data, checkpoint, "--gen-subset", "valid", *words)
    parser = options.get_eval_lm_parser()
    args = options.parse_args_and_arch(parser, arguments)
    return eval_lm.main(convert_namespace_to_omegaconf(args))


def fairseq_generate(data: Path, checkpoint: Path, *words: str) -> None:
    arguments = _evaluation_words(data, checkpoint, *words)
    with _command("fairseq-generate", arguments):
        generate.cli_main()


def fairseq_interactive(data: Path, checkpoint: Path, *words: str) -> None:
    with _command("fairseq-interactive", _evaluation_words(data, checkpoint, *words)):
        interactive.cli_main()


def fairseq_validate(data: Path, checkpoint: Path, *words: str) -> None:
    arguments = _evaluation_words(data, checkpoint, "--batch-size", "4", *words)
    with _command("fairseq-validate", arguments):
        validate.cli_main()


def record_draws(patch: pytest.MonkeyPatch) -> list[int]:
    """What stochastic encodings draw from now on, in a list that grows; as outside the tests."""
    drawn: list[int] = []

    def draw() -> torch.Tensor:
        seed = torch.randint(2**62, ())
        drawn.append(int(seed))
        return seed

    patch.setattr("fairseq_plugins.attention.base.draw_seed", draw)
    return drawn


def _evaluation_words(data: Path, checkpoint: Path, *words: str) -> list[str]:
    return [
        *(str(data), "--user-dir", USER_DIR, "--task", "language_modeling", "--cpu"),
        *("--path", str(checkpoint), "--num-workers", "0", *words),
    ]


def load_model(checkpoint: Path) -> tuple[Any, Any]:
    """The model of a checkpoint and its task, as fairseq's commands load them."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    return models[0].eval(), task


def read_tokens(data: Path, split: str) -> torch.Tensor:
    """A split as one stream of token ids, each sentence with its end."""
    dictionary = tasks.TASK_REGISTRY["language_modeling"].load_dictionary(str(data / "dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(data / split), dictionary)
    return torch.from_numpy(np.concatenate([dataset[i].numpy() for i in range(len(dataset))]))
