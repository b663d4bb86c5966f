# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # What a linear layer can make of sinusoids
#
# *On Position Embeddings in BERT* (Appendix A.2) adds sines and cosines of D/2 frequencies to the
# embedding of a token (Eq. 9). A linear layer, such as a query projection, then gives a Fourier
# series of the position in each of its features (Eq. 10): a constant from the token, and a weighted
# sum of these sines and cosines. With enough and suitable frequencies it comes near any continuous
# function on an interval. With few, it matters which.

# %%
import torch
from torch import Tensor

from fairseq_plugins.analysis.fourier_picture import LENGTH, SETS, bump, fit_error
from fairseq_plugins.encodings import build_encoding

at = torch.arange(LENGTH).unsqueeze(0)


def table(name: str, dim: int) -> Tensor:
    """Return the vectors of an encoding at the positions: (LENGTH, dim) float64."""
    encoding = build_encoding(name, num_heads=1, head_dim=dim, max_positions=LENGTH)
    return encoding.embed(torch.zeros(1, LENGTH, dim), at)[0].double()


# %% [markdown]
# ## The sum of Eq. 10
#
# One feature of a projection of token plus position is a constant plus the series, exactly.

# %%
torch.manual_seed(1)
token, weights = torch.randn(2, 16, dtype=torch.float64)
p = table("sinusoidal", 16)
projected = (token + p) @ weights
frequencies = 10000 ** (-2 * torch.arange(8).double() / 16)
angles = at[0].unsqueeze(1) * frequencies
series = token @ weights + angles.sin() @ weights[0::2] + angles.cos() @ weights[1::2]
equation_10 = (projected - series).abs().max().item()
print(f"largest difference {equation_10:.0e}")

# %% [markdown]
# ## Any function of the position
#
# A function that attention might want: a bump at position 40, of width 6. The best weights are a
# least-squares fit. Fourier's frequencies, pi k / LENGTH, fill the interval; of those of the fixed
# encoding, 10000^(-2k/D), many are too slow to change within it.

# %%
target = bump()
errors = {name: {dim: fit_error(name, dim) for dim in (8, 16, 32, 64)} for name in SETS}
for dim, fixed in errors["fixed"].items():
    print(f"D = {dim:2}: fixed {fixed:.4f}, fourier {errors['fourier'][dim]:.4f}")

# %% [markdown]
# ## Frequencies that are learned
#
# `learnable_sinusoidal` trains the D/2 frequencies. From the fixed ones, together with the weights:

# %%
dim = 16
encoding = build_encoding("learnable_sinusoidal", num_heads=1, head_dim=dim, max_positions=LENGTH)
encoding = encoding.double()
layer = torch.nn.Linear(dim, 1).double()
optimizer = torch.optim.Adam([*encoding.parameters(), *layer.parameters()], lr=0.01)
zeros = torch.zeros(1, LENGTH, dim, dtype=torch.float64)
for _ in range(1500):
    loss = (layer(encoding.embed(zeros, at))[0, :, 0] - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    found = layer(encoding.embed(zeros, at))[0, :, 0]
learned = (found - target).square().mean().sqrt().item()
print(f"D = {dim}: learned {learned:.4f}, fixed {errors['fixed'][dim]:.4f}")

# %% [markdown]
# So the expressive power of sinusoids is that of a Fourier series, and learning its frequencies is
# worth features. A learned table of 128 vectors could give any function with one weight, but none
# for position 128.
