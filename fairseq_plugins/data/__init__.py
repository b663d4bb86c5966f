"""The embedded corpus: a small language in which position matters, and how it is written to files.

Needs neither fairseq nor PyTorch; `python -m fairseq_plugins.data --output DIR` writes it.
`published` knows the raw files of corpora that others publish, `gpt2_bpe` GPT-2's pieces, which it
reads with fairseq.
"""

from fairseq_plugins.data.generated import (
    SENTENCES,
    VERSION,
    add_arguments,
    sentences_from,
    write_corpus,
)
from fairseq_plugins.data.sentences import (
    KINDS,
    Agreement,
    Bracket,
    Copy,
    Phrase,
    Sentence,
    generate,
)

__all__ = [
    "KINDS",
    "SENTENCES",
    "VERSION",
    "Agreement",
    "Bracket",
    "Copy",
    "Phrase",
    "Sentence",
    "add_arguments",
    "generate",
    "sentences_from",
    "write_corpus",
]
