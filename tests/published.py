"""A small random BERT in a folder as published ones are, for tests of all that starts from one."""

import string
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertForMaskedLM, BertModel

# As in bert-base-uncased the special tokens are not the first ones.
SPECIALS = ("[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("the", "cat", "sat", "on", "mat", "and", "dog", "is", "not", "what", "who", "where")
PUNCTUATION = (".", ",", "?", "!", "'", "-")
CHARACTERS = string.ascii_lowercase + string.digits
VOCABULARY = (
    *SPECIALS,
    *PUNCTUATION,
    *CHARACTERS,
    *WORDS,
    *(f"##{character}" for character in CHARACTERS),
    "##ing",
    "##ed",
)


def write_bert_folder(
    path: Path,
    *,
    layers: int = 2,
    width: int = 32,
    heads: int = 4,
    max_positions: int = 64,
    vocabulary: Sequence[str] = VOCABULARY,
    head: bool = False,
    seed: int = 1,
) -> Path:
    """Write config.json, model.safetensors, vocab.txt and tokenizer.json; return the folder.

    vocabulary: tokens in the order of their ids, with `SPECIALS`; the default one spells any
    text of ASCII letters and digits. head: with the output head, as BertForMaskedLM; without it as
    BertModel.
    """
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=2 * width,
        max_position_embeddings=max_positions,
        layer_norm_eps=1e-12,
        pad_token_id=vocabulary.index("[PAD]"),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = (BertForMaskedLM if head else BertModel)(config)
        with torch.no_grad():
            for parameter in model.parameters():  # biases and norms are no constants any more
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(path)
    (path / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    tokenizer = BertWordPieceTokenizer(str(path / "vocab.txt"), lowercase=True)
    tokenizer.save(str(path / "tokenizer.json"))
    return path
