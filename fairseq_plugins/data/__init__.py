"""Text corpora, generated or published, and their preparation as fairseq data folders.

The generated corpus needs neither fairseq nor PyTorch: `python -m fairseq_plugins.data --output
DIR` writes it. `published` describes published corpora; `gpt2_bpe` and `wordpiece` are tokenizers.
"""
