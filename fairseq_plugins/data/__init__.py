"""Text corpora, generated or published, and their preparation as fairseq data folders.

The generated corpus needs neither fairseq nor PyTorch: `python -m fairseq_plugins.data --output
DIR` writes it. `published` describes published corpora; `gpt2_bpe` and `wordpiece` are tokenizers.
"""

from fairseq_plugins.data.generated import (
    SENTENCES,
    VERSION,
    add_arguments,
    sentences_from,
    write_corpus,
)
from fairseq_plugins.data.sentences import KINDS, Phrase, Sentence, generate

__all__ = [
    "KINDS",
    "SENTENCES",
    "VERSION",
    "Phrase",
    "Sentence",
    "add_arguments",
    "generate",
    "sentences_from",
    "write_corpus",
]
