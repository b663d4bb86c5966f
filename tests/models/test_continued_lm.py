"""`pe_transformer_lm` started from a checkpoint with another encoding, or a shorter table."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins.encodings.hierarchical import combined, decomposed
from fairseq_plugins.encodings.tables import interpolated_rows
from fairseq_plugins.models.pe_transformer_lm import PETransformerLM, PETransformerLMConfig
from fairseq_plugins.modules.growing import GROWTH_METHODS, SU_ALPHA
from tests.models.helpers import (
    DICTIONARY,
    HEADS,
    LONGEST,
    TASK,
    TINY,
    build_lm,
    configure,
    random_tokens,
)

TABLE = "decoder.position_embedding.weight"
LONGER = 2 * LONGEST + 3


def saved(path: Path, **options: Any) -> tuple[Path, PETransformerLM]:
    """A model with large learned tables, and its checkpoint as far as it is read here."""
    model = build_lm(**options)
    names = {"position_encoding": options["encoding"], "_name": "pe_transformer_lm"}
    config = {**vars(PETransformerLMConfig()), **TINY, **names}
    plain = {name: value for name, value in config.items() if isinstance(value, (int, float, str))}
    checkpoint = {"model": model.state_dict(), "cfg": {"model": plain, "task": {"data": ""}}}
    torch.save(checkpoint, path / "model.pt")
    return path / "model.pt", model


def started(path: Path, encoding: str, **options: Any) -> PETransformerLM:
    torch.manual_seed(1)
    own = {"position_encoding": encoding, "init_from": str(path)}
    config = configure(PETransformerLMConfig(), {**TINY, **own, **options})
    return PETransformerLM.build_model(config, TASK).eval()


@pytest.mark.parametrize("how", sorted(GROWTH_METHODS))
def test_a_table_grows(how: str, tmp_path: Path) -> None:
    path, old = saved(tmp_path, encoding="learned")
    before = old.state_dict()
    after = started(path, "learned", max_target_positions=LONGER, grow_table=how).state_dict()
    table = before[TABLE]
    if how == "interpolate":
        expected = interpolated_rows(table, LONGER)
    elif how == "hierarchical":
        rows = torch.arange(LONGER)
        expected = combined(decomposed(table, SU_ALPHA), SU_ALPHA, rows)
    else:
        expected = torch.cat((table, after[TABLE][LONGEST:]))
        assert after[TABLE][LONGEST:].std() < table.std() / 2  # drawn, not trained
    torch.testing.assert_close(after[TABLE], expected)
    assert all(torch.equal(after[name], before[name]) for name in before if name != TABLE)


def test_a_grown_model_reads_short_texts_as_before_and_longer_ones(tmp_path: Path) -> None:
    path, old = saved(tmp_path, encoding="learned")
    model = started(path, "learned", max_target_positions=LONGER)
    tokens = random_tokens(2, LONGER)
    with torch.no_grad():
        short = model(tokens[:, :20])[0]
        torch.testing.assert_close(short, old(tokens[:, :20])[0])
        torch.testing.assert_close(model(tokens)[0][:, :20], short)
    with pytest.raises(ValueError, match="must be below max_positions=64"):
        old(tokens)


@pytest.mark.parametrize(
    ("before", "after"), [("learned", "rope"), ("base", "lrpe_type2"), ("t5", "learned+t5")]
)
def test_an_encoding_is_replaced(before: str, after: str, tmp_path: Path) -> None:
    path, old = saved(tmp_path, encoding=before)
    theirs, model = old.state_dict(), started(path, after).state_dict()
    for name in {*theirs, *model}:
        if "position_embedding" in name or (".encoding." in name and before != "t5"):
            assert name not in theirs or name not in model
        else:
            assert torch.equal(theirs[name], model[name]), name


def test_hierarchical_is_derived_from_a_learned_checkpoint(tmp_path: Path) -> None:
    path, old = saved(tmp_path, encoding="learned")
    options = {"position_encoding_options": f"table_size={LONGEST}"}
    model = started(path, "hierarchical", max_target_positions=LONGER, **options)
    with torch.no_grad():
        rows = model.decoder.position_embedding.rows(torch.arange(LONGEST).unsqueeze(0))[0]
    torch.testing.assert_close(rows, old.state_dict()[TABLE])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder_attention_heads": HEADS // 2}, f"heads is {HEADS}, here {HEADS // 2}"),
        ({"decoder_layers": 3}, "decoder_layers is 2, here 3"),
    ],
)
def test_another_model_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path, _ = saved(tmp_path, encoding="learned")
    with pytest.raises(ValueError, match=r"^`init_from` must .* must differ only") as caught:
        started(path, "learned", **options)
    assert message in str(caught.value)


@pytest.mark.parametrize("theirs", ["vanilla", "linear"])
def test_an_output_norm_is_new_after_another_attention(theirs: str, tmp_path: Path) -> None:
    """Its weights begin as a norm that changes nothing; all others are the checkpoint's."""
    path, old = saved(tmp_path, encoding="learned", attention=theirs)
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["cfg"]["model"]["attention_type"] = theirs
    torch.save(checkpoint, path)
    model = started(
        path, "learned", attention_type="linear", linear_normalizer="output_norm"
    ).state_dict()
    new = {name for name in model if "output_norm" in name}
    assert new and set(model) - new == set(old.state_dict())
    for name, value in model.items():
        begins = torch.full_like(value, float(name.endswith("weight")))
        assert torch.equal(value, begins if name in new else old.state_dict()[name]), name


def test_another_dictionary_is_refused(tmp_path: Path) -> None:
    path, _ = saved(tmp_path, encoding="learned")
    checkpoint = torch.load(path, weights_only=True)
    for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        checkpoint["model"][name] = checkpoint["model"][name][:-1]
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match=str(len(DICTIONARY))):
        started(path, "learned")
