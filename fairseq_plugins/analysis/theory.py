"""Mathematical claims of the papers, each decided by a computation without a trained model."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.analysis.awareness import Awareness, as_words, centre_gap, measure_awareness
from fairseq_plugins.analysis.position_rows import added_scores, build_plain, input_rows
from fairseq_plugins.attention import build_attention
from fairseq_plugins.encodings import PositionEncoding, build_encoding
from fairseq_plugins.encodings.bias import t5_buckets
from fairseq_plugins.encodings.floater import Floater
from fairseq_plugins.encodings.frequencies import geometric

# The survey's table of T5's buckets: f(i - j) for the distances 0, 1, ..., 30.
SURVEY_BUCKETS = (*range(8), *[8] * 4, *[9] * 4, *[10] * 7, *[11] * 8)
WIDTH, LENGTH = 64, 128


@dataclass(frozen=True)
class Finding:
    """The result of a computation."""

    holds: bool
    text: str  # the computation and its result, as a part of a sentence


class RotationField(nn.Module):
    """dp/dt = w_j [[0, 1], [-1, 0]] p for each pair j of features.

    From [0, 1, 0, 1, ...] it is solved by [sin(w_1 t), cos(w_1 t), sin(w_2 t), ...].
    """

    def __init__(self, frequencies: Tensor) -> None:
        super().__init__()
        self.frequencies = frequencies

    def forward(self, time: Tensor, p: Tensor) -> Tensor:
        """Return dp/dt (C) at a time () and p (C)."""
        sine, cosine = p.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((cosine, -sine), dim=-1) * self.frequencies.unsqueeze(-1)
        return turned.flatten(-2)


def attention_ignores_order() -> Finding:
    """Permute the tokens of an attention without an encoding: its outputs are permuted alike."""
    generator = _generator()
    x = torch.randn(1, 1, LENGTH, WIDTH, generator=generator, dtype=torch.float64)
    order = torch.randperm(LENGTH, generator=generator)
    at = torch.arange(LENGTH).unsqueeze(0)
    worst = 0.0
    for name in ("vanilla", "linear"):
        attention = build_attention(
            name, _build("none"), num_heads=1, head_dim=WIDTH, causal=False
        ).double()
        output, permuted = (
            attention(z, z, z, q_positions=at, k_positions=at)[0] for z in (x, x[:, :, order])
        )
        worst = max(worst, _largest(permuted - output[:, :, order]))
    return Finding(worst < 1e-9, "permuted tokens have permuted outputs, softmax and linear")


def sinusoids_from_floater() -> Finding:
    """Compare FLOATER's solution for a rotation field with the sinusoidal encoding."""
    count = 40
    floater = _build("floater", method="dopri5", tolerance=1e-9).double()
    assert isinstance(floater, Floater)
    floater.field = RotationField(geometric(WIDTH // 2, WIDTH) / floater.solver.step)
    floater.start.data = torch.tensor([0.0, 1.0] * (WIDTH // 2), dtype=torch.float64)
    with torch.no_grad():
        worst = _largest(_vectors(floater, count) - _vectors(_build("sinusoidal"), count))
    text = f"with h(p, t) = A p, {count} vectors of the solution are sinusoids within {worst:.0e}"
    return Finding(worst < 1e-5, text)


def learned_table_ends() -> Finding:
    """Ask a learned table for its last position and for the one after it."""
    learned = _build("learned")
    _vectors(learned, LENGTH)
    try:
        _vectors(learned, LENGTH + 1)
    except ValueError:
        return Finding(True, f"a table of {LENGTH} vectors has none for position {LENGTH}")
    return Finding(False, "the table goes on")


def hierarchical_reaches_the_square() -> Finding:
    """Count the distinct vectors that a table of n gives by hierarchical decomposition."""
    count = 32
    vectors = _vectors(_build("hierarchical", table_size=count), count**2).detach()
    distances = torch.cdist(vectors, vectors).fill_diagonal_(torch.inf)
    apart = bool(distances.min() > 1e-3)
    return Finding(apart, f"{count} vectors give {count**2:,} distinct ones")


def sinusoids_of_a_sum() -> Finding:
    """Compare the sinusoid of a sum of positions with the products of the two."""
    p = _vectors(_build("sinusoidal"), LENGTH)
    sine, cosine = p[:, 0::2], p[:, 1::2]
    a, b = torch.cartesian_prod(torch.arange(LENGTH // 2), torch.arange(LENGTH // 2)).unbind(1)
    worst = max(
        _largest(sine[a] * cosine[b] + cosine[a] * sine[b] - sine[a + b]),
        _largest(cosine[a] * cosine[b] - sine[a] * sine[b] - cosine[a + b]),
    )
    return Finding(worst < 1e-5, f"p(a + b) is bilinear in p(a) and p(b), within {worst:.0e}")


def clipped_table_serves_any_length() -> Finding:
    """Compare Shaw's terms beyond the largest distance of its table with those at it."""
    most = 16
    shaw = _build("shaw", max_distance=most)
    q = torch.randn(1, 1, 1, WIDTH, generator=_generator())
    at = torch.tensor([[0]])
    with torch.no_grad():
        edge, *far = (
            shaw.relative_logits(q, q, at + distance, at) for distance in (most, 100, 10_000)
        )
    holds = all(torch.equal(edge, one) for one in far)
    return Finding(holds, f"{2 * most + 1} vectors serve distances of 100 and 10,000 too")


def t5_buckets_widen() -> Finding:
    """Compare T5's buckets with the survey's table, and count the distances of each."""
    distances = torch.arange(-256, 1).flip(0)
    buckets = t5_buckets(distances, num_buckets=32, max_distance=128, causal=False)
    printed = buckets[: len(SURVEY_BUCKETS)].tolist() == list(SURVEY_BUCKETS)
    widths = buckets.bincount()[:-1]  # the last has all distances beyond
    widen = bool((widths[:8] == 1).all() and (widths.diff() >= 0).all())
    text = (
        f"the printed buckets of 0 to 30; the last of 16 begins at distance {int(widths.sum())}, "
        "where clipping to 16 vectors has it begin at 15"
    )
    return Finding(printed and widen, text)


def rope_is_relative() -> Finding:
    """Compare RoPE's scores of pairs at the same distance."""
    worst = _change_of_scores(_build("rope"), 1_000)
    return Finding(worst < 1e-5, f"scores at one distance agree within {worst:.0e}")


def rope_bound_decays() -> Finding:
    """Compute RoFormer's bound on a score (its Section 3.4.3) by distance.

    The bound is the mean of |S_j|, S_j = sum_{i < j} exp(i m theta_i); it is averaged over the
    distances m in 1, 2..3, 4..7, ... up to 1,023.
    """
    angles = torch.arange(1024, dtype=torch.float64).unsqueeze(1) * geometric(WIDTH // 2, WIDTH)
    bound = torch.polar(torch.ones_like(angles), angles).cumsum(1).abs().mean(1)
    means = torch.stack([bound[2**k : 2 ** (k + 1)].mean() for k in range(10)])
    text = (
        f"from distance 1 to 512..1,023 the mean bound falls from {means[0]:.1f} to "
        f"{means[-1]:.1f}, at every doubling, but not at every step"
    )
    return Finding(bool((means.diff() < 0).all()), text)


def rotated_values_tell_positions() -> Finding:
    """Rotate values too: scores stay relative, and outputs depend on where the text begins."""
    encoding = _build("rope_values", output="as_is").double()
    x = torch.randn(1, 1, 8, WIDTH, generator=_generator(), dtype=torch.float64)
    scores, outputs = [], []
    for start in (0, 7):
        at = torch.arange(start, start + 8).unsqueeze(0)
        scores.append(encoding.transform_query(x, at) @ encoding.transform_key(x, at).mT)
        outputs.append(scores[-1].softmax(-1) @ encoding.transform_value(x, at))
    moved = _largest(outputs[1] - outputs[0])
    text = f"seven positions on, scores are the same and outputs differ by {moved:.1f}"
    return Finding(_largest(scores[1] - scores[0]) < 1e-5 and moved > 0.1, text)


def zero_padding_tells_positions() -> Finding:
    """Convolve equal tokens, with zeros at the ends: outputs near the ends differ."""
    convolution = _build("cnn", kernel_size=3)
    x = torch.ones(1, 9, WIDTH)
    with torch.no_grad():
        output = convolution.embed(x, torch.arange(9).unsqueeze(0))[0]
    inner = output[1:-1]
    same = _largest(inner - inner[:1]) < 1e-6
    ends = min(_largest(output[end] - output[4]) for end in (0, -1))
    text = "equal tokens differ at the two ends alone, as far as the kernel reaches"
    return Finding(same and ends > 1e-3, text)


def lrpe_types_are_relative() -> Finding:
    """Compare the types' scores of pairs at the same distance, learned parameters as drawn."""
    worst = max(_change_of_scores(_build(f"lrpe_type{number}"), 100) for number in range(1, 9))
    return Finding(worst < 1e-5, f"scores at one distance agree within {worst:.0e}")


def rope_is_an_lrpe() -> Finding:
    """Compare LRPE's scores, P the identity, with RoFormer's product of complex numbers."""
    lrpe = _build("lrpe_type6", p="identity", learned_theta=False).double()
    q, k = torch.randn(2, 1, 1, LENGTH, WIDTH, generator=_generator(), dtype=torch.float64).unbind()
    at = torch.arange(LENGTH).unsqueeze(0)
    scores = lrpe.transform_query(q, at) @ lrpe.transform_key(k, at).mT
    angles = at.mT * geometric(WIDTH // 2, WIDTH).double()
    turns = torch.polar(torch.ones_like(angles), angles)
    one, other = (torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns for x in (q, k))
    worst = _largest(scores - (one @ other.mH).real)
    return Finding(worst < 1e-4, f"scores are RoFormer's within {worst:.0e}")


def sinusoids_tell_the_start() -> Finding:
    """Measure which features of SPE agree between lengths, counted from either end."""
    found = _awareness("sinusoidal")
    return Finding(found.forward.is_aware and not found.backward.is_aware, _shared(found))


def reversed_sinusoids_tell_the_end() -> Finding:
    """Measure which features of RSPE agree between lengths, counted from either end."""
    found = _awareness("rspe")
    return Finding(found.backward.is_aware and not found.forward.is_aware, _shared(found))


def dual_sinusoids_tell_both() -> Finding:
    """Measure which features of DPE agree between lengths, counted from either end."""
    found = _awareness("dpe")
    return Finding(found.forward.is_aware and found.backward.is_aware, _shared(found))


def relative_terms_tell_neither() -> Finding:
    """Measure how far one key's score under relative encodings differs between queries."""
    names = ("shaw", "xl", "t5", "alibi", "rope")
    least = min(centre_gap(added_scores(build_plain(name), LENGTH)) for name in names)
    text = f"a key's score differs between queries by {least:.0%} of the largest or more"
    return Finding(least > 0.1, f"of {', '.join(names)}: {text}")


def added_sinusoids_have_no_sum() -> Finding:
    """Fit the vector of a sum of positions by products of the two, over all lengths."""
    plain, added = (_awareness(name).sum_error for name in ("sinusoidal", "aspe"))
    text = f"the best formula misses {added:.0%} of ASPE's vectors and {plain:.0%} of SPE's"
    return Finding(plain < 1e-3 < 0.1 < added, text)


CHECKS: Mapping[str, Callable[[], Finding]] = {
    function.__name__: functools.cache(function)
    for function in (
        attention_ignores_order,
        sinusoids_from_floater,
        learned_table_ends,
        hierarchical_reaches_the_square,
        sinusoids_of_a_sum,
        clipped_table_serves_any_length,
        t5_buckets_widen,
        rope_is_relative,
        rope_bound_decays,
        zero_padding_tells_positions,
        rotated_values_tell_positions,
        lrpe_types_are_relative,
        rope_is_an_lrpe,
        sinusoids_tell_the_start,
        reversed_sinusoids_tell_the_end,
        dual_sinusoids_tell_both,
        relative_terms_tell_neither,
        added_sinusoids_have_no_sum,
    )
}


def _awareness(name: str) -> Awareness:
    (encoding,) = build_plain(name).inputs
    assert encoding is not None
    return measure_awareness({length: input_rows(encoding, length) for length in range(2, 41)})


def _shared(found: Awareness) -> str:
    forward, backward = found.forward.features, found.backward.features
    return (
        f"of {len(forward)} features {as_words(forward)} agree at lengths of 2 to 40 counted from "
        f"the start, and {as_words(backward)} from the end"
    )


@torch.no_grad()
def _change_of_scores(encoding: PositionEncoding, far: int) -> float:
    """Return the largest change of a pair's score as both move from 0 to 7 and `far` positions."""
    encoding = encoding.double()
    q, k = torch.randn(2, 1, 1, 1, WIDTH, generator=_generator(), dtype=torch.float64).unbind()
    first, *others = (
        encoding.transform_query(q, torch.tensor([[start]]))
        @ encoding.transform_key(k, torch.tensor([[start + 5]])).mT
        for start in (0, 7, far)
    )
    return max(_largest(other - first) for other in others)


def _build(name: str, **options: Any) -> PositionEncoding:
    return build_encoding(
        name, num_heads=1, head_dim=WIDTH, max_positions=LENGTH, generator=_generator(), **options
    )


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def _vectors(encoding: PositionEncoding, count: int) -> Tensor:
    """Return the vectors of the first positions: (count, C) float64."""
    zeros = torch.zeros(1, count, WIDTH, dtype=torch.float64)
    return encoding.embed(zeros, torch.arange(count).unsqueeze(0))[0]


def _largest(difference: Tensor) -> float:
    return float(difference.abs().max())
