"""Cross-entropy without the logits against the formula through them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairseq_plugins.kernels import (
    linear_best_words,
    linear_cross_entropy,
    naive_linear_cross_entropy,
    word_blocks,
)
from fairseq_plugins.kernels.word_blocks import OutputLayer, Targets

PAD = 1
FAMILIES = [{}, {"label_smoothing": 0.1}, {"bias": True}, {"bias": True, "label_smoothing": 0.3}]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few tokens and words are many blocks, the last of them not full."""
    monkeypatch.setattr(word_blocks, "_MIN_TOKENS", 3)
    monkeypatch.setattr(word_blocks, "_BLOCK", 1)
    monkeypatch.setattr(word_blocks, "_STRIP", 30)
    monkeypatch.setattr(word_blocks, "_MIN_WORDS", 4)
    monkeypatch.setattr(word_blocks, "_LOGITS", {"cpu": 1})


def draw(n: int = 8, c: int = 5, v: int = 11, *, bias: bool = False, size: float = 1.0, seed=0):
    """Features, weight, bias and targets, the second of which is padding: float64."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    target = torch.randint(v, (n,), generator=generator)
    target[target == PAD] = v - 1
    target[1:2] = PAD
    tensors = [normal(n, c) * size, normal(v, c), normal(v) * size] if bias else []
    tensors = tensors or [normal(n, c) * size, normal(v, c)]
    return [tensor.requires_grad_() for tensor in tensors], target


def apply(function, tensors, target, **options):
    features, weight, *bias = tensors
    return function(features, weight, target, *bias, ignore_index=PAD, **options)


def with_gradients(function, tensors, target, slopes=None, **options):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    loss, nll = apply(function, leaves, target, **options)
    gradients = torch.autograd.grad(loss, leaves, slopes)
    return [loss.detach(), nll, *gradients]


def close(actual, expected, tolerance: float = 1e-10, rounding: float = 0.0) -> None:
    """Each within ``tolerance`` of its largest value, and what rounding does before that."""
    for one, other in zip(actual, expected, strict=True):
        assert one.shape == other.shape
        scale = other.abs().max() if other.numel() else 0
        assert (
            (one.double() - other.double()).abs().le(rounding + tolerance * (1e-30 + scale)).all()
        )


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_is_the_naive_one(family, reduce):
    options = {**family, "reduce": reduce}
    tensors, target = draw(bias=options.pop("bias", False))
    slopes = torch.tensor(3.0) if reduce else torch.linspace(-1, 2, 8)
    slopes = slopes.double()
    found = with_gradients(linear_cross_entropy, tensors, target, slopes, **options)
    close(found, with_gradients(naive_linear_cross_entropy, tensors, target, slopes, **options))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize("reduce", [True, False])
def test_gradients(family, reduce):
    options = {**family, "reduce": reduce}
    tensors, target = draw(6, 3, 7, bias=options.pop("bias", False))
    slopes = torch.tensor(2.5) if reduce else torch.linspace(-1, 2, 6)

    def weighted(*tensors: Tensor) -> Tensor:
        loss, _ = apply(linear_cross_entropy, tensors, target, **options)
        return (loss * slopes).sum()

    # A second backward pass adds up in another order.
    assert torch.autograd.gradcheck(weighted, tensors, nondet_tol=1e-12)


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 9),
    c=st.integers(1, 6),
    v=st.integers(3, 20),
    size=st.sampled_from([1e-3, 1.0, 30.0]),
    smoothing=st.sampled_from([0.0, 0.1, 0.9]),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape(n, c, v, size, smoothing, bias, seed):
    tensors, target = draw(n, c, v, bias=bias, size=size, seed=seed)
    options = {"label_smoothing": smoothing}
    found = with_gradients(linear_cross_entropy, tensors, target, **options)
    expected = with_gradients(naive_linear_cross_entropy, tensors, target, **options)
    # Where a target is nearly sure, what is left of logits and of a probability of 1 has their
    # last digits, not its own.
    close(found, expected, rounding=1e-15 * max(1.0, size))
    # A common shift of all logits changes nothing: gradients of logits add up to zero over words.
    loss, nll, *gradients = found
    if bias and n:
        assert abs(gradients[2].sum()) <= 1e-9 * (1 + gradients[2].abs().sum())
    assert loss >= 0 and nll >= 0
    # Tokens are independent: the sum is that of the single ones.
    with torch.no_grad():
        single, _ = apply(linear_cross_entropy, tensors, target, reduce=False, **options)
    assert single.sum() == pytest.approx(float(loss), rel=1e-12)
    assert (single[target == PAD] == 0).all()


def test_block_borders_leave_no_trace(monkeypatch):
    """Real block sizes with more tokens than a block and more words than a strip or a block."""
    tensors, target = draw(300, 4, 9001)
    monkeypatch.setattr(word_blocks, "_BLOCK", 1)
    monkeypatch.setattr(word_blocks, "_LOGITS", {"cpu": 2**19})
    for reduce in (True, False):
        options = {"label_smoothing": 0.1, "reduce": reduce}
        slopes = None if reduce else torch.rand(len(target), dtype=torch.float64)
        found = with_gradients(linear_cross_entropy, tensors, target, slopes, **options)
        close(found, with_gradients(naive_linear_cross_entropy, tensors, target, slopes, **options))


def test_a_second_backward_pass_makes_gradients_anew():
    tensors, target = draw(bias=True)
    loss, _ = apply(linear_cross_entropy, tensors, target, label_smoothing=0.1)
    first = torch.autograd.grad(loss, tensors, torch.tensor(3.0).double(), retain_graph=True)
    second = torch.autograd.grad(loss, tensors, torch.tensor(3.0).double())
    close(second, first)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, tensors)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
@pytest.mark.parametrize("reduce", [True, False])
def test_what_needs_no_gradient_gets_none(wanted, reduce):
    tensors, target = draw()
    expected = with_gradients(naive_linear_cross_entropy, tensors, target)[2:]
    for tensor, needs in zip(tensors, wanted, strict=True):
        tensor.requires_grad_(needs)
    loss, nll = apply(linear_cross_entropy, tensors, target, reduce=reduce)
    assert not nll.requires_grad
    loss.sum().backward()
    for tensor, gradient, needs in zip(tensors, expected, wanted, strict=True):
        assert (tensor.grad is not None) == needs
        if needs:
            close([tensor.grad], [gradient])


def test_without_gradients_nothing_is_kept():
    tensors, target = draw(bias=True)
    expected = apply(linear_cross_entropy, tensors, target, label_smoothing=0.1)
    with torch.no_grad():
        found = apply(linear_cross_entropy, tensors, target, label_smoothing=0.1)
    assert not found[0].requires_grad
    close(found, [x.detach() for x in expected])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_half_precision_rounds_results_alone(dtype, smoothing):
    """Sums are float32: losses are those of the rounded inputs, gradients are rounded once."""
    tensors, target = draw(300, 16, 5000, bias=True)
    rounded = [tensor.detach().to(dtype) for tensor in tensors]
    slope = torch.tensor(128.0)  # as a scaled loss has
    options = {"label_smoothing": smoothing}
    loss, nll, *gradients = with_gradients(linear_cross_entropy, rounded, target, slope, **options)
    wide = [tensor.double() for tensor in rounded]
    expected = with_gradients(naive_linear_cross_entropy, wide, target, slope.double(), **options)
    assert loss.dtype == nll.dtype == torch.float32
    close([loss, nll], expected[:2], 1e-6)
    assert all(gradient.dtype == dtype for gradient in gradients)
    close(gradients, expected[2:], torch.finfo(dtype).eps)


@pytest.mark.parametrize("slope", [1e-3, 1.0, 2.0**20])
def test_operands_of_half_precision_hold_small_probabilities(slope):
    """What a GPU multiplies in float16: of 5,000 words most have less than its smallest number
    would show, and a scaled loss has slopes beyond its largest."""
    tensors, target = draw(40, 16, 5000)
    features, weight = (tensor.detach().half().float() for tensor in tensors)
    output, targets = OutputLayer(weight, None), Targets(target, target != PAD, 1.0, 0.0)
    slopes = torch.full((40,), slope)
    wanted = (True, True, False)
    log_sum = word_blocks.losses_by_words(features, output, targets, torch.float16).log_sum
    found = word_blocks.gradients_by_words(
        features, output, targets, log_sum, slopes, torch.float16, wanted
    )
    expected = with_gradients(
        naive_linear_cross_entropy, [features.double(), weight.double()], target,
        torch.tensor(slope).double(),
    )  # fmt: skip
    close(found[:2], expected[2:], 2e-3)
    unlikely = expected[3].abs().amax(1) < expected[3].abs().max() * 1e-3
    assert unlikely.any()
    close([found.weight[unlikely]], [expected[3][unlikely]], 2e-3)


def test_autocast_leaves_float32_sums():
    tensors, target = draw(50, 16, 3000)
    single = [tensor.detach().float() for tensor in tensors]
    expected = with_gradients(linear_cross_entropy, single, target)
    with torch.autocast("cpu", torch.bfloat16):
        found = with_gradients(linear_cross_entropy, single, target)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_large_logits_stay_finite():
    tensors, target = draw(size=1e4, bias=True)
    single = [tensor.detach().float() for tensor in tensors]
    for reduce in (True, False):
        options = {"label_smoothing": 0.1, "reduce": reduce}
        slopes = None if reduce else torch.ones(8)
        found = with_gradients(linear_cross_entropy, single, target, slopes, **options)
        wide = [tensor.double() for tensor in single]
        wide_slopes = None if reduce else slopes.double()
        expected = with_gradients(naive_linear_cross_entropy, wide, target, wide_slopes, **options)
        close(found, expected, 1e-5)


@pytest.mark.usefixtures("small_blocks")
def test_best_words():
    (features, weight, bias), _ = draw(bias=True)
    expected = (features @ weight.T + bias).argmax(1)
    assert torch.equal(linear_best_words(features, weight, bias), expected)
    tied = torch.ones(11, 5, dtype=torch.float64)
    assert linear_best_words(features, tied).eq(0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": torch.zeros(11, 4)}, r"`features` and `weight` must be \(N, C\)"),
        ({"target": torch.zeros(7, dtype=torch.long)}, r"`target` must be \(8,\)"),
        ({"bias": torch.zeros(3)}, r"`bias` must be \(11,\)"),
        ({"label_smoothing": 1.0}, r"`label_smoothing` must be in \[0, 1\), but is 1.0"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    given = {"features": torch.zeros(8, 5), "weight": torch.zeros(11, 5)}
    given["target"] = torch.zeros(8, dtype=torch.long)
    with pytest.raises(ValueError, match=message):
        linear_cross_entropy(**{**given, **change})


@pytest.mark.parametrize("target", [-1, 11])
def test_a_target_that_is_no_word_is_refused(target):
    with pytest.raises(IndexError, match=r"\[0, 11\)"):
        linear_cross_entropy(torch.zeros(1, 5), torch.zeros(11, 5), torch.tensor([target]))
