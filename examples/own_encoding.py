# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A position encoding of one's own in ten minutes
#
# A class with one hook, a decorator with its name, and it runs under every attention that can
# have it. Here: a bias that fades with the logarithm of the distance, at a speed that each head
# learns. It needs PyTorch, and matplotlib for a picture. `docs/extending.md` has all hooks, and
# where to put the file so that the tables and the tests know it too.

# %%
import torch
from torch import Tensor, nn

from fairseq_plugins.analysis.picture import build, observe
from fairseq_plugins.analysis.picture_files import draw_side_by_side
from fairseq_plugins.attention import PositionalMultiheadAttention
from fairseq_plugins.encodings import (
    ENCODINGS,
    EncodingContext,
    IncompatibleEncodingError,
    PositionEncoding,
    register_encoding,
)
from fairseq_plugins.encodings.base import relative_positions

# %% [markdown]
# ## The class
#
# Queries are at s, keys at t. A bias is added to the logits: `attn_bias` makes it of positions,
# which may be anything (a decoding step passes the last one alone), so nothing here counts
# columns.


# %%
@register_encoding(
    "log_fade",
    summary="a bias that falls with the logarithm of the distance, learned per head",
    source="examples/own_encoding.py",
    formula="logit - c_h log(1 + |t - s|), c_h > 0 learned",
)
class LogFade(PositionEncoding):
    """logit - c_h log(1 + |t - s|), one c_h per head."""

    def __init__(self, context: EncodingContext, *, start: float = 1.0) -> None:
        super().__init__(context)
        if start <= 0:
            raise ValueError(f"`start` must be positive, but is {start} instead.")
        self.log_speed = nn.Parameter(torch.full((context.num_heads,), start).log())

    def attn_bias(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """(B or 1, H, T, S)."""
        distance = relative_positions(q_positions, k_positions).abs().unsqueeze(1)
        return -self.log_speed.exp().view(1, -1, 1, 1) * torch.log1p(distance.float())


print(ENCODINGS["log_fade"].formula)

# %% [markdown]
# ## In a layer
#
# By its name, with its option, in place of `nn.MultiheadAttention`. What linear attention never
# computes, the logits of all pairs, it refuses when the layer is built.

# %%
torch.manual_seed(1)
layer = PositionalMultiheadAttention(64, 4, position_encoding="log_fade", causal=True, start=0.5)
x = torch.randn(2, 12, 64)
output, weights = layer(x, x, x)
print(output.shape, weights.shape)

try:
    PositionalMultiheadAttention(64, 4, position_encoding="log_fade", attention="linear")
except IncompatibleEncodingError as error:
    refusal = str(error)
    print(refusal[:110], "...")

# %% [markdown]
# ## Does it do what it says?
#
# Three properties that a relative encoding must have, whatever its formula: moving all positions
# changes nothing, padding changes nothing, and a token at a time gives what one pass gives.

# %%
layer.eval()
with torch.no_grad():
    at = torch.arange(12).unsqueeze(0)
    plain = layer(x, x, x)[0]
    moved = layer(x, x, x, query_positions=at + 7, key_positions=at + 7)[0]

    padding = torch.zeros(2, 12, dtype=torch.bool)
    padding[1, :5] = True
    padded = layer(x, x, x, key_padding_mask=padding)[0][1, 5:]
    alone = layer(x[1:, 5:], x[1:, 5:], x[1:, 5:])[0][0]

    state, steps = None, []
    for t in range(12):
        step, state = layer.step(x[:, t : t + 1], state)
        steps.append(step)
errors = {
    "moved": (moved - plain).abs().max().item(),
    "padded": (padded - alone).abs().max().item(),
    "in steps": (torch.cat(steps, 1) - plain).abs().max().item(),
}
for name, error in errors.items():
    print(f"{name:9} {error:.1e}")

# %% [markdown]
# ## What does it do?
#
# Kernel and attention of untrained encodings, side by side (matplotlib, extra `figures`).
# `fairseq-pe analyse picture alibi rope` makes the same of any names.

# %%
side_by_side = draw_side_by_side(
    [observe(name, build(name, length=65), length=65) for name in ("log_fade", "alibi", "rope")]
)
side_by_side  # noqa: B018  (a notebook shows it)

# %% [markdown]
# ## Does it learn?
#
# A task of distance alone: say which token stood two places before. Without any position a
# causal model sees only which tokens came earlier, not where.


# %%
def learns(position_encoding: str) -> list[float]:
    """The loss over 150 updates of one layer that is to repeat what stood two places before."""
    torch.manual_seed(2)
    words = nn.Embedding(8, 64)
    layer = PositionalMultiheadAttention(64, 4, position_encoding=position_encoding, causal=True)
    head = nn.Linear(64, 8)
    parameters = [p for module in (words, layer, head) for p in module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    losses = []
    for _ in range(150):
        tokens = torch.randint(0, 8, (16, 20))
        x = words(tokens)
        logits = head(layer(x, x, x, need_weights=False)[0])[:, 2:]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, :-2].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


final = {name: sum(learns(name)[-10:]) / 10 for name in ("none", "log_fade", "xl")}
for name, loss in final.items():
    print(f"{name:9} {loss:.3f}")

# %% [markdown]
# A fading bias tells near from far, which is better than nothing; that a key is *exactly* two
# places away only an encoding with a term for each distance can say (`xl`). The next step is a
# file in `fairseq_plugins/encodings/`, after which `fairseq-pe table table2 --rows
# base,log_fade` trains it beside the others.
