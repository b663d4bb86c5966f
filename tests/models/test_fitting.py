"""Weights of a checkpoint are compared with the model that its options describe."""

from argparse import Namespace
from pathlib import Path

import pytest

from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.modules.fitting import require_fit
from fairseq_plugins.modules.identity import LM, ROBERTA, TRANSLATION
from tests import checkpoints


@pytest.mark.parametrize("name", [LM, ROBERTA, TRANSLATION])
def test_options_of_a_task_without_a_dataclass(name: str, tmp_path: Path) -> None:
    """fairseq keeps them in a Namespace, as those of `translation_multi_simple_epoch`."""
    state = checkpoints.make(name, checkpoints.write_data(name, tmp_path / "data"))
    options = state["cfg"]["task"]
    state["cfg"]["task"] = Namespace(**options)
    require_fit(tmp_path / "x.pt", state)
    state["cfg"]["task"] = Namespace(**options, langs=2**50)
    with pytest.raises(CheckpointError, match=r"option task\.langs must be a finite number"):
        require_fit(tmp_path / "x.pt", state)
