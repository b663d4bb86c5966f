"""Published masked language models, by the family that their config.json names."""

from pathlib import Path

from fairseq_plugins.data.options import check_folder
from fairseq_plugins.integrations import bert, roberta
from fairseq_plugins.integrations.folders import CONFIG_FILE, read_json
from fairseq_plugins.integrations.masked_models import check_options

FAMILIES = (bert.BERT.model_type, roberta.ROBERTA.model_type)


def to_fairseq(source: Path, target: Path, pieces: Path) -> None:
    """Write a Hugging Face folder of a BERT or a RoBERTa as a fairseq folder.

    Args:
        source: the folder.
        target: an existing, empty one.
        pieces: GPT-2's, of a RoBERTa; a BERT has its own.

    Raises:
        ValueError: a model of another family, or as `bert.to_fairseq` and `roberta.to_fairseq` do.
    """
    path = source / CONFIG_FILE
    config = read_json(path)
    check_options(path, config, {"model_type": FAMILIES})
    if config["model_type"] == bert.BERT.model_type:
        bert.to_fairseq(source, target)
    else:
        check_folder(pieces, "--bpe")
        roberta.to_fairseq(source, target, pieces)
