"""Perplexities of summed losses."""

import math

import pytest
import torch

from fairseq_plugins.data.raw_text import RawText
from fairseq_plugins.evaluation.perplexity import Score, per_unit, perplexity, summarise, token_bits

TEXT = RawText(words=20, bytes=100)


def test_bits_of_tokens() -> None:
    probabilities = torch.tensor([[[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [1.0, 0.0, 0.0]]])
    target = torch.tensor([[1, 0, 1]])
    counted = torch.tensor([[True, True, False]])
    bits, count = token_bits(probabilities.log(), target, counted)
    assert (bits, count) == (pytest.approx(2 + 3), 2)
    with pytest.raises(ValueError, match="1 of 3 losses of a batch are not finite"):
        token_bits(probabilities.log(), target, torch.ones_like(counted))


def test_bits_are_summed_in_float64() -> None:
    """Half precision could not hold so many."""
    log_probs = torch.full((1, 200_000, 1), -math.log(2), dtype=torch.float16)
    target = torch.zeros(1, 200_000, dtype=torch.int64)
    bits, count = token_bits(log_probs, target, target.eq(0))
    assert bits == pytest.approx(200_000 * float(log_probs[0, 0, 0]) / -math.log(2), rel=1e-12)
    assert count == 200_000


@pytest.mark.parametrize("units", [1, 7, 300])
def test_any_share_gives_the_same_text(units: int) -> None:
    """Perplexity to the power of the units is the text's improbability, whatever the units."""
    found = per_unit(120.0, units)
    assert found is not None and found["perplexity"] is not None and found["bits"] is not None
    assert units * math.log2(found["perplexity"]) == pytest.approx(120.0)
    assert units * found["bits"] == pytest.approx(120.0)


def test_what_no_number_holds_is_unknown() -> None:
    assert perplexity(1024.0) is None
    assert perplexity(1023.0) == 2.0**1023
    assert per_unit(1.0, None) is None
    assert per_unit(1.0, 0) is None


def test_words_and_bytes_are_those_of_all_tokens() -> None:
    whole = summarise(Score(bits=120.0, predicted=40, tokens=40, skipped=0), TEXT)
    assert whole["per_token"] == {"bits": 3.0, "perplexity": 8.0}
    assert whole["per_word"] == {"bits": 6.0, "perplexity": 64.0}
    assert whole["per_byte"] == {"bits": 1.2, "perplexity": pytest.approx(2**1.2)}
    for part in (Score(120.0, 40, 40, 2), Score(120.0, 6, 40, 0)):
        found = summarise(part, TEXT)
        assert found["per_word"] is found["per_byte"] is None
        assert found["per_token"] is not None
    assert summarise(Score(120.0, 40, 40, 0), RawText())["per_word"] is None
