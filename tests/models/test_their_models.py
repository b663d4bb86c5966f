"""Checkpoints of fairseq's own models as a start: they are rows `base` and `learned` here."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models.transformer_lm import TransformerLanguageModelConfig

from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.models.pe_transformer_lm import PETransformerLMConfig
from fairseq_plugins.modules.identity import LM, TRANSLATION, describe, differences
from tests.models import translation
from tests.models.helpers import TINY, build_fairseq_lm, build_lm, random_tokens
from tests.models.test_continued_lm import started


def enlarge(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def save_lm(path: Path, model: Any, **options: Any) -> Path:
    """As fairseq does, as far as it is read here."""
    config = {**vars(TransformerLanguageModelConfig()), **TINY, **options}
    plain = {name: value for name, value in config.items() if isinstance(value, (int, float, str))}
    plain["_name"] = "transformer_lm"
    torch.save({"model": model.state_dict(), "cfg": {"model": plain, "task": {"data": ""}}}, path)
    return path


@pytest.mark.parametrize("learned", [False, True])
def test_a_language_model_is_the_same_and_may_get_another_encoding(
    learned: bool, tmp_path: Path
) -> None:
    theirs = enlarge(build_fairseq_lm(decoder_learned_pos=learned))
    tokens = random_tokens(2, 9)
    row = "learned" if learned else "base"
    model = build_lm(encoding=row)
    state = theirs.state_dict()
    model.upgrade_state_dict(state)
    model.load_state_dict(state)
    torch.testing.assert_close(model(tokens)[0], theirs(tokens)[0], rtol=1e-5, atol=1e-5)

    path = save_lm(tmp_path / "theirs.pt", theirs, decoder_learned_pos=learned)
    same = started(path, row)
    torch.testing.assert_close(same(tokens)[0], theirs(tokens)[0], rtol=1e-5, atol=1e-5)
    exchanged = started(path, "rope").state_dict()
    for name, weight in theirs.state_dict().items():
        assert "embed_positions" in name or torch.equal(exchanged[name], weight), name


def test_another_language_model_of_theirs_is_refused(tmp_path: Path) -> None:
    theirs = build_fairseq_lm(decoder_normalize_before=True)
    path = save_lm(tmp_path / "theirs.pt", theirs, decoder_normalize_before=True)
    with pytest.raises(CheckpointError, match="decoder_normalize_before is True, here False"):
        started(path, "rope")


@pytest.mark.parametrize("learned", [False, True])
def test_a_translation_model_is_the_same(learned: bool) -> None:
    sides = {f"{side}_learned_pos": learned for side in ("encoder", "decoder")}
    theirs = enlarge(translation.build_fairseq(**sides))
    model = translation.build(position_encoding="learned" if learned else "base")
    state = theirs.state_dict()
    model.upgrade_state_dict(state)
    model.load_state_dict(state)
    for left in (False, True):
        actual, expected = (translation.one_pass(one, left)[0] for one in (model, theirs))
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("learned", [False, True])
def test_they_are_described_as_their_row(learned: bool) -> None:
    row = {"position_encoding": "learned" if learned else "base"}
    given = {**TINY, "decoder_learned_pos": learned, "arch": "transformer_lm_gpt"}
    ours = describe({**vars(PETransformerLMConfig()), **TINY, **row}, model=LM)
    theirs = describe({**vars(TransformerLanguageModelConfig()), **given})
    assert not differences(theirs, ours)
    other = describe(
        {**vars(PETransformerLMConfig()), **TINY, "position_encoding": "rope"}, None, LM
    )
    assert [d.about for d in differences(theirs, other)] == ["encoding"]
    sides = {f"{side}_learned_pos": learned for side in ("encoder", "decoder")}
    config = {**vars(translation.PETransformerConfig()), **translation.TINY}
    model = describe({**config, **row}, model=TRANSLATION)
    theirs = describe({**translation.TINY, **sides, "arch": "transformer_iwslt_de_en"})
    assert not differences(theirs, model)
