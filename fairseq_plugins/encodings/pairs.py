"""Pairs of an absolute and a relative encoding from "On Position Embeddings in BERT"."""

from fairseq_plugins.encodings.registry import register_composition

for _absolute in ("learned", "learnable_sinusoidal"):
    for _relative in ("shaw", "sinusoidal_rpe", "learnable_sinusoidal_rpe"):
        register_composition(
            f"{_absolute}_{_relative}",
            (_absolute, _relative),
            summary=f"{_absolute} on the tokens and {_relative} in the attention",
            source="Position Embeddings in BERT, Table 2",
        )
