"""Tiny translation models built as the task builds them, without a command or data."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_plugins.encodings import PositionEncoding
from fairseq_plugins.models.pe_transformer import PETransformer, PETransformerConfig
from tests.models.helpers import DICTIONARY, HEADS, LAYERS, LONGEST, PAD, WIDTH, pad_rows

TARGET = Dictionary()
for _i in range(24):
    TARGET.add_symbol(f"x{_i}")
EOS = TARGET.eos()
TASK = SimpleNamespace(source_dictionary=DICTIONARY, target_dictionary=TARGET)

TINY: dict[str, Any] = {
    **{f"{side}_layers": LAYERS for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")},
    "encoder_embed_dim": WIDTH,
    "encoder_ffn_embed_dim": WIDTH,
    "dropout": 0.0,
    "max_source_positions": LONGEST,
    "max_target_positions": LONGEST,
}

# Names and options as in Table 4.
TABLE4 = ["base", "rope", "spe", "per", "t5", *(f"lrpe_type{i}" for i in range(1, 9))]


def build(task: Any = TASK, **options: Any) -> PETransformer:
    """``pe_transformer`` in evaluation mode."""
    config = PETransformerConfig()
    for name, value in {**TINY, **options}.items():
        assert name in config.__dataclass_fields__, name
        setattr(config, name, value)
    return PETransformer.build_model(config, task).eval()


def build_fairseq(**options: Any) -> TransformerModel:
    """fairseq's own ``transformer``."""
    return TransformerModel.build_model(Namespace(**{**TINY, **options}), TASK).eval()


def enlarge(model: PETransformer) -> PETransformer:
    """Large learned tables, and logits so far apart that rounding changes no beam's order."""
    with torch.no_grad():
        for encoding in {m for m in model.modules() if isinstance(m, PositionEncoding)}:
            for parameter in encoding.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.decoder.layers[-1].final_layer_norm.weight.mul_(3)
    return model


def sources(lengths: list[int]) -> list[Tensor]:
    """Sentences of these lengths, the last token of each being the end."""
    words = [torch.randint(DICTIONARY.nspecial, len(DICTIONARY), (n,)) for n in lengths]
    return [torch.cat((sentence[:-1], torch.tensor([EOS]))) for sentence in words]


def batch(sentences: list[Tensor], *, left: bool) -> Tensor:
    """(B, T), padded on one side."""
    rows = torch.full((len(sentences), max(map(len, sentences))), PAD)
    for row, sentence in zip(rows, sentences, strict=True):
        row[slice(-len(sentence), None) if left else slice(len(sentence))] = sentence
    return rows


def targets(count: int, length: int) -> Tensor:
    """What the decoder gets: the end of sentence, then words: (B, T)."""
    words = torch.randint(TARGET.nspecial, len(TARGET), (count, length))
    words[:, 0] = EOS
    return words


def lengths_of(tokens: Tensor) -> Tensor:
    return tokens.ne(PAD).sum(1)


def translate(
    model: PETransformer, sentences: list[Tensor], *, incremental: bool = True
) -> list[list[dict[str, Any]]]:
    """The beams of the sentences, searched in one batch that is padded on the left."""
    generator = SequenceGenerator([model], TARGET, beam_size=4, max_len_a=0, max_len_b=10)
    assert generator.model.has_incremental_states()
    generator.model.has_incremental = incremental
    tokens = batch(sentences, left=True)
    net_input = {"src_tokens": tokens, "src_lengths": lengths_of(tokens)}
    beams: list[list[dict[str, Any]]] = generator.generate([model], {"net_input": net_input})
    return beams


def one_pass(model: Any, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and alignments of the words of a padded batch."""
    torch.manual_seed(8)
    source = batch(sources([9, 4, 7]), left=left)
    target = pad_rows(targets(3, 8), [5, 8, 6], left=False)
    logits, extra = model(source, lengths_of(source), target)
    kept = target != PAD
    return logits[kept], extra["attn"][0][kept]
