# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # The same words at other positions
#
# *On Position Embeddings in BERT* (Appendix K): a pair of sentences is cut to the longest length in
# one of several ways, so that the absolute position of a word is an accident. Here the paper's
# three samples, and what an absolute and a relative encoding make of them.

# %%
import torch

from fairseq_plugins.encodings import build_encoding

SECOND = ["I", "think", ",", "therefore", "I", "am"]
SAMPLES = {
    "I": "[CLS] are the No.1 productive forces . [SEP] I think , therefore I am . [SEP]",
    "II": "[CLS] Deadlines are the No.1 productive forces . [SEP] I think , therefore I am [SEP]",
    "III": "[CLS] Publish or Perish ? [SEP] I think , therefore I am [SEP]",
}
first = {}
for name, sample in SAMPLES.items():
    words = sample.split()
    first[name] = words.index("I")
    print(f"{name:3} {len(words):2} tokens, the second sentence begins at {first[name] + 1}")

# %% [markdown]
# ## Scores within the second sentence
#
# The same queries and keys at the positions of each sample. RoPE turns both by their positions, and
# only differences are left; a learned table adds another vector at each place.

# %%
torch.manual_seed(1)
DIM = 16
content = torch.randn(1, len(SECOND), DIM)
rope = build_encoding("rope", num_heads=1, head_dim=DIM)
learned = build_encoding("learned", num_heads=1, head_dim=DIM, max_positions=16)
scores = {"rope": [], "learned": []}
for start in first.values():
    at = torch.arange(start, start + len(SECOND)).unsqueeze(0)
    heads = content.unsqueeze(1)
    encoded = rope.transform_query(heads, at) @ rope.transform_key(heads, at).mT
    scores["rope"].append(encoded[0, 0])
    x = learned.embed(content, at)
    scores["learned"].append((x @ x.mT)[0].detach())
moved = {
    name: max((one - found[0]).abs().max().item() for one in found)
    for name, found in scores.items()
}
for name, change in moved.items():
    print(f"{name:8} scores differ by up to {change:.1e}")

# %% [markdown]
# An absolute encoding has to learn that these are the same, a relative one cannot tell them apart.
