"""A pass of ``pe_transformer``: positions, what layers share, noise, precision, alignments."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.sequence_generator import SequenceGeneratorWithAlignment

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.modules.transformer_options import ATTENTION_SITES
from tests.models.helpers import (
    DICTIONARY,
    LONGEST,
    PAD,
    check_noise_of_training,
    pad_rows,
    without_noise,
)
from tests.models.translation import (
    TARGET,
    batch,
    build,
    lengths_of,
    one_pass,
    sources,
    targets,
)


def test_cross_attention_sees_all_of_the_source() -> None:
    """Also what lies beyond the target's position, and with a linear attention; with padding."""
    for attention in ATTENTIONS:
        model = build(cross_attention_type=attention, cross_position_encoding="rope")
        source, target = batch(sources([9]), left=True), targets(1, 3)
        changed = source.clone()
        changed[0, -2] = DICTIONARY.nspecial + (changed[0, -2] + 1) % 20
        logits = [model(s, lengths_of(s), target)[0][0, 0] for s in (source, changed)]
        assert (logits[0] - logits[1]).abs().max() > 1e-4


def test_relative_cross_attention_counts_words() -> None:
    """Target word s against source word t: t - s, whatever the padding."""
    model = build(cross_position_encoding="t5")
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    encoding = model.decoder.layers[0].encoder_attn.attention.encoding
    original = encoding.attn_bias

    def spy(q_positions: torch.Tensor, k_positions: torch.Tensor) -> torch.Tensor:
        seen.append((q_positions, k_positions))
        return original(q_positions, k_positions)

    encoding.attn_bias = spy
    source = batch(sources([3, 5]), left=True)
    target = pad_rows(targets(2, 4), [2, 4], left=True)
    model(source, lengths_of(source), target)
    assert seen
    for queries, keys in seen:
        assert queries.tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
        assert keys.tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_deeper_layers_get_their_positions(side: str) -> None:
    """deberta_emd has them before the last two layers alone; the table acts through these."""
    model = build(**{f"{side}_position_encoding": "deberta_emd", f"{side}_layers": 3})
    stack = getattr(model, side)
    assert stack.position_embedding is None
    assert sorted(stack.deeper_embeddings) == ["1", "2"]
    outputs = [one_pass(model, True)[0]]
    with torch.no_grad():
        stack.deeper_embeddings["2"].absolute.weight.normal_()
    outputs.append(one_pass(model, True)[0])
    assert (outputs[0] - outputs[1]).abs().max() > 1e-3


def test_what_is_shared_by_layers_is_computed_once() -> None:
    """One bias per pass and place, however many layers."""
    model = build(
        position_encoding="t5",
        cross_position_encoding="t5",
        encoder_layers=3,
        decoder_layers=3,
    )
    source, target = batch(sources([5, 5]), left=True), targets(2, 4)
    model.train()
    calls = dict.fromkeys(ATTENTION_SITES, 0)
    for place in ATTENTION_SITES:
        stack = model.encoder if place == "encoder" else model.decoder
        layers = [x.encoder_attn if place == "cross" else x.self_attn for x in stack.layers]
        assert len({layer.attention.encoding for layer in layers}) == 1
        encoding = layers[0].attention.encoding

        def spy(*args: Any, _place: str = place, _original: Any = encoding.attn_bias) -> Any:
            calls[_place] += 1
            return _original(*args)

        encoding.attn_bias = spy
    model(source, lengths_of(source), target)
    assert calls == {"encoder": 1, "decoder": 1, "cross": 1}


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
@pytest.mark.parametrize("offload", [False, True])
def test_checkpointed_activations(attention: str, offload: bool) -> None:
    """Also with padding before the target, which a recomputed cross-attention has to know."""
    options = {"attention_type": attention, "position_encoding": "lrpe_type2"}
    options |= {"cross_attention_type": attention, "cross_position_encoding": "rope"}
    models = []
    for checkpoint in (False, True):
        torch.manual_seed(2)
        more = {"checkpoint_activations": checkpoint, "offload_activations": offload}
        models.append(build(**options, dropout=0.1, **more).train())
    source = batch(sources([6, 9]), left=True)
    target, losses = pad_rows(targets(2, 7), [4, 7], left=True), []
    for model in models:
        torch.manual_seed(4)
        logits = model(source, lengths_of(source), target)[0]
        losses.append(logits[target != PAD].square().mean())
        losses[-1].backward()
    torch.testing.assert_close(losses[1], losses[0])
    for plain, checkpointed in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(checkpointed.grad, plain.grad)


@pytest.mark.parametrize(
    "options",
    [
        {"encoder_layerdrop": 0.5},
        {"decoder_layerdrop": 0.5},
        {"quant_noise_pq": 0.5, "quant_noise_pq_block_size": 4},
        {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1},
    ],
    ids=str,
)
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_noise_is_of_training_alone(attention: str, options: dict[str, Any]) -> None:
    places = {"attention_type": attention, "cross_attention_type": attention}
    models = [
        build(position_encoding="rope", **places, **given)
        for given in (options, without_noise(options))
    ]
    source, target = batch(sources([6, 9]), left=True), targets(2, 7)

    def logits(model: Any) -> torch.Tensor:
        output: torch.Tensor = model(source, lengths_of(source), target)[0]
        assert output.shape == (2, 7, len(TARGET))
        return output

    check_noise_of_training(models[0], models[1], logits)


def test_absolute_embedding_beside_a_relative_one() -> None:
    """On as in the paper, learned or off by fairseq's own options, on both sides."""
    options: list[dict[str, Any]] = [
        {},
        {"encoder_learned_pos": True},
        {"decoder_learned_pos": True},
        {"no_token_positional_embeddings": True},
    ]
    labels = []
    for given in options:
        model = build(position_encoding="rope", **given)
        sides = [side.position_embedding for side in (model.encoder, model.decoder)]
        labels.append([None if side is None else side.label for side in sides])
    assert labels == [["base", "base"], ["learned", "base"], ["base", "learned"], [None, None]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_half_precision(attention: str, dtype: torch.dtype) -> None:
    options = {"attention_type": attention, "position_encoding": "lrpe_type2"}
    model = build(**options, cross_attention_type=attention)
    source, target = batch(sources([30, 40]), left=True), targets(2, 40)
    with torch.no_grad():
        exact = model(source, lengths_of(source), target)[0]
    logits = model.to(dtype)(source, lengths_of(source), target)[0]
    assert logits.dtype == dtype
    error = (logits.float() - exact).norm() / exact.norm()
    assert error < (0.05 if dtype == torch.bfloat16 else 0.01)


def test_alignments() -> None:
    """Softmax cross-attention has weights over the source; a linear one has none to print."""
    source, target = batch(sources([6, 9]), left=True), targets(2, 7)
    weights = build()(source, lengths_of(source), target)[1]["attn"][0]
    assert weights.shape == (2, 7, 9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 7))
    model = build(cross_attention_type="linear")
    assert model(source, lengths_of(source), target)[1]["attn"] == [None]
    generation = SimpleNamespace(print_alignment="hard", no_beamable_mm=False, beam=5)
    with pytest.raises(ValueError, match="`print_alignment` must be off"):
        model.prepare_for_inference_(SimpleNamespace(generation=generation))


def test_alignments_that_a_call_requests() -> None:
    """A hub model is prepared without `print_alignment`, which its `generate` may give."""
    source = batch(sources([6, 9]), left=True)
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths_of(source)}}
    for options in ({}, {"cross_attention_type": "linear"}):
        model = build(**options).eval()
        generator = SequenceGeneratorWithAlignment([model], TARGET, beam_size=2, max_len_b=5)
        if options:
            with pytest.raises(ValueError, match="`print_alignment` must be off"):
                generator.generate([model], sample)
        else:
            found = generator.generate([model], sample)
            assert [len(one["alignment"]) > 0 for one in found[0] + found[1]] == [True] * 4


def test_every_parameter_of_an_encoding_is_in_the_state() -> None:
    """And loads into a model that drew other ones."""
    options = {"encoder_position_encoding": "deberta_emd", "decoder_position_encoding": "floater"}
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(build(**options, cross_position_encoding="xl"))
    encodings = [m for m in models[0].modules() if isinstance(m, PositionEncoding)]
    assert len(encodings) > 3
    models[1].load_state_dict(models[0].state_dict())
    torch.testing.assert_close(one_pass(models[1], True)[0], one_pass(models[0], True)[0])
    assert models[0].max_positions() == (LONGEST, LONGEST)


def test_the_first_word_has_a_position_in_tupe() -> None:
    """It is no [CLS], which RoBERTa's first token is."""
    model = build(position_encoding="tupe", cross_position_encoding="tupe")
    assert not [name for name, _ in model.named_parameters() if name.endswith("_cls")]
