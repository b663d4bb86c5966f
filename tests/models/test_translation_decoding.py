"""Translation: beam search, single steps and padding against whole passes, for Table 4's rows."""

import time
from typing import Any

import pytest
import torch

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.encodings import get_entry
from fairseq_plugins.models.pe_transformer import PETransformer
from tests.models.helpers import LONGEST, PAD
from tests.models.translation import (
    EOS,
    TABLE4,
    batch,
    build,
    enlarge,
    lengths_of,
    sources,
    targets,
    translate,
)
from tests.quick import first_of_each_kind


def _fits(attention: str, encoding: str) -> bool:
    return not get_entry(encoding).hooks - ATTENTIONS[attention].supported_hooks


# (encoding, attention of the encoder, attention of the decoder)
ROWS = [
    (encoding, encoder, decoder)
    for encoding in TABLE4
    for encoder in ATTENTIONS
    for decoder in ATTENTIONS
    if _fits(encoder, encoding) and _fits(decoder, encoding)
]
# Steps and padding are tested for every row; a search puts them together, whatever the encoding.
SEARCHED = list({(get_entry(row[0]).hooks, row[2]): row for row in reversed(ROWS)}.values())
# Encoder and decoder meet in cross-attention alone: two attentions for one encoding of its hooks.
MIXED = list({(get_entry(r[0]).hooks, *r[1:]): r for r in ROWS if r[1] != r[2]}.values())

LENGTHS = [9, 4, 7]

# What can be between encoder and decoder, beyond nothing.
CROSS = [
    {"cross_attention_type": "linear"},
    {"cross_attention_type": "linear", "cross_position_encoding": "lrpe_type2"},
    {"cross_attention_type": "linear", "cross_position_encoding": "spe"},
    {"cross_position_encoding": "rope"},
    {"cross_position_encoding": "t5"},
    {"cross_position_encoding": "shaw_keys"},
]


def _model(encoding: str, encoder: str, decoder: str, **options: Any) -> PETransformer:
    attention = {"encoder_attention_type": encoder, "decoder_attention_type": decoder}
    return enlarge(build(position_encoding=encoding, **attention, **options))


def _forced(model: PETransformer, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Logits (B, T, V) of one pass over everything."""
    with torch.no_grad():
        logits: torch.Tensor = model(source, lengths_of(source), target)[0]
    return logits


def _assert_same(beams: list[list[Any]], expected: list[list[Any]]) -> None:
    assert [len(beam) for beam in beams] == [len(beam) for beam in expected]
    for beam, other in zip(beams, expected, strict=True):
        for hypothesis, reference in zip(beam, other, strict=True):
            assert hypothesis["tokens"].tolist() == reference["tokens"].tolist()
            torch.testing.assert_close(
                hypothesis["positional_scores"], reference["positional_scores"], rtol=0, atol=1e-4
            )


def _check_beams(model: PETransformer) -> None:
    """One batch = one by one = without incremental state; scores are those of a whole pass."""
    sentences = sources(LENGTHS)
    beams = translate(model, sentences)
    assert len({str(hypothesis["tokens"].tolist()) for b in beams for hypothesis in b}) > 4
    _assert_same(beams, [translate(model, [sentence])[0] for sentence in sentences])
    _assert_same(beams, translate(model, sentences, incremental=False))
    for sentence, beam in zip(sentences, beams, strict=True):
        for hypothesis in beam:
            tokens = hypothesis["tokens"].long()
            inputs = torch.cat((torch.tensor([EOS]), tokens[:-1]))
            logits = _forced(model, sentence.unsqueeze(0), inputs.unsqueeze(0))
            scores = logits[0].log_softmax(-1).gather(1, tokens.unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(hypothesis["positional_scores"], scores, rtol=0, atol=1e-4)


def _check_steps(model: PETransformer) -> None:
    """Step by step, the beam reordered and made smaller on the way."""
    source, target = batch(sources(LENGTHS), left=True), targets(3, 8)
    state: dict[str, Any] = {}
    with torch.no_grad():
        encoded = model.encoder(source, src_lengths=lengths_of(source))
        expected = _forced(model, source, target)
        for end in range(1, target.size(1) + 1):
            order = {4: [2, 0, 0], 6: [1, 0]}.get(end)
            if order:
                new_order = torch.tensor(order)
                model.decoder.reorder_incremental_state_scripting(state, new_order)
                encoded = model.encoder.reorder_encoder_out(encoded, new_order)
                source, target = source[new_order], target[new_order]
                expected = _forced(model, source, target)
            logits = model.decoder(target[:, :end], encoder_out=encoded, incremental_state=state)
            torch.testing.assert_close(logits[0], expected[:, end - 1 : end], rtol=1e-4, atol=1e-4)


def _check_padding(model: PETransformer) -> None:
    """On either side of source and target."""
    sentences, target, kept = sources(LENGTHS), targets(3, 8), [5, 8, 6]
    for left_source in (True, False):
        for left_target in (True, False):
            source = batch(sentences, left=left_source)
            ends = [row[:n] for row, n in zip(target, kept, strict=True)]
            padded = batch(ends, left=left_target)
            logits = _forced(model, source, padded)
            assert logits.isfinite().all()
            for row, (sentence, end) in enumerate(zip(sentences, ends, strict=True)):
                alone = _forced(model, sentence.unsqueeze(0), end.unsqueeze(0))[0]
                actual = logits[row][padded[row] != PAD]
                torch.testing.assert_close(actual, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("encoding", "encoder", "decoder"), SEARCHED)
def test_beam_search(encoding: str, encoder: str, decoder: str) -> None:
    _check_beams(_model(encoding, encoder, decoder))


@pytest.mark.parametrize(
    "row",
    first_of_each_kind(
        [*(row for row in ROWS if row[1] == row[2]), *MIXED],
        lambda row: (get_entry(row[0]).hooks, *row[1:]),
        "-".join,
    ),
)
def test_steps_and_padding_are_one_pass(row: tuple[str, str, str]) -> None:
    model = _model(*row)
    _check_steps(model)
    _check_padding(model)


@pytest.mark.parametrize(
    ("decoder", "cross"), [*(("vanilla", cross) for cross in CROSS), ("linear", CROSS[1])]
)
def test_cross_attention(decoder: str, cross: dict[str, str]) -> None:
    model = _model("rope", "linear", decoder, **cross)
    if decoder == "vanilla":
        _check_beams(model)
    _check_steps(model)
    _check_padding(model)


# Parts that act between the layers, or are the same in all of them.
IN_THE_STACK = [
    ("deberta_emd", ""),
    ("floater", "every_layer=true"),
    ("tupe_relative", ""),
    ("xl", ""),
    ("cnn", ""),
    ("complex_order", ""),
    ("base+shaw", ""),
]


@pytest.mark.parametrize(("encoding", "words"), IN_THE_STACK)
def test_what_acts_in_the_stack(encoding: str, words: str) -> None:
    options = {"position_encoding_options": words, "encoder_layers": 3, "decoder_layers": 3}
    model = _model(encoding, "vanilla", "vanilla", **options)
    _check_steps(model)
    _check_padding(model)
    if encoding in ("deberta_emd", "floater"):  # others have nothing between the layers
        _check_beams(model)


def test_one_draw_of_a_stochastic_encoding_lasts_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every pass draws anew, but the steps of one search, however reordered, keep theirs."""
    seeds = iter(range(1000))
    monkeypatch.setattr("fairseq_plugins.attention.base.draw_seed", lambda: next(seeds))
    model = _model("spe", "linear", "linear", cross_position_encoding="spe")
    source, target = batch(sources(LENGTHS), left=True), targets(3, 6)
    assert not torch.equal(_forced(model, source, target), _forced(model, source, target))
    state: dict[str, Any] = {}
    with torch.no_grad():
        encoded = model.encoder(source, src_lengths=lengths_of(source))
        before = next(seeds)
        for end in range(1, 7):
            model.decoder(target[:, :end], encoder_out=encoded, incremental_state=state)
            model.decoder.reorder_incremental_state_scripting(state, torch.tensor([2, 0, 1]))
    layers = model.decoder.layers
    assert next(seeds) - before == 1 + 2 * len(layers)


def _state_sizes(model: PETransformer, length: int) -> list[int]:
    """Numbers kept after each step."""
    source, target = batch(sources(LENGTHS), left=True), targets(3, length)
    state: dict[str, Any] = {}
    sizes = []
    with torch.no_grad():
        encoded = model.encoder(source, src_lengths=lengths_of(source))
        for end in range(1, length + 1):
            model.decoder(target[:, :end], encoder_out=encoded, incremental_state=state)
            kept = [tensor for part in state.values() for tensor in part.values()]
            sizes.append(sum(tensor.untyped_storage().nbytes() for tensor in kept))
    return sizes


@pytest.mark.parametrize("cross", ["vanilla", "linear"])
@pytest.mark.parametrize("encoding", [name for name in TABLE4 if _fits("linear", name)])
def test_a_linear_decoder_keeps_a_constant_state(encoding: str, cross: str) -> None:
    sizes = _state_sizes(_model(encoding, "linear", "linear", cross_attention_type=cross), 12)
    assert len(set(sizes)) == 1


def test_the_measure_finds_a_growing_state() -> None:
    sizes = _state_sizes(_model("rope", "linear", "vanilla"), LONGEST)
    assert sizes[-1] > sizes[0]


@pytest.mark.slow
def test_a_linear_decoders_steps_cost_the_same() -> None:
    """Time per token, early and late: at most a quarter more after 4,000 tokens."""
    length, window = 4096, 256
    wide = {"max_target_positions": length, "encoder_embed_dim": 128}
    model = _model("rope", "linear", "linear", **wide)
    source, target = batch(sources(LENGTHS), left=True), targets(3, length)
    state: dict[str, Any] = {}
    seconds = []
    with torch.no_grad():
        encoded = model.encoder(source, src_lengths=lengths_of(source))
        for end in range(1, length + 1):
            start = time.perf_counter()
            model.decoder(target[:, :end], encoder_out=encoded, incremental_state=state)
            seconds.append(time.perf_counter() - start)
    early, late = sorted(seconds[window : 2 * window]), sorted(seconds[-window:])
    assert late[window // 2] < 1.25 * early[window // 2]
