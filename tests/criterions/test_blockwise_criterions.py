"""The criterions without logits against fairseq's own: losses, logs and every gradient."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion
from fairseq.criterions.masked_lm import MaskedLmConfig
from fairseq.logging import metrics
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

import fairseq_plugins.registration  # noqa: F401
from tests.models import roberta, translation
from tests.models.helpers import (
    DICTIONARY,
    PAD,
    build_fairseq_lm,
    build_lm,
    pad_rows,
    random_tokens,
)

Sample = dict[str, Any]
FAMILIES = ["lm", "masked", "translation"]
NAMES = {
    "lm": "cross_entropy",
    "masked": "masked_lm",
    "translation": "label_smoothed_cross_entropy",
}
# Options of models: tied output weights and not.
TIED: dict[str, tuple[dict[str, Any], ...]] = {
    "lm": ({}, {"share_decoder_input_output_embed": False}),
    "masked": ({}, {"untie_weights_roberta": True}),
    "translation": ({"share_decoder_input_output_embed": True}, {}),
}


def criterion(family: str, kind: str = "blockwise_", **options: Any) -> FairseqCriterion:
    """Built as fairseq builds it, from its dataclass."""
    dictionary = translation.TARGET if family == "translation" else DICTIONARY
    cls = CRITERION_REGISTRY[kind + NAMES[family]]
    defaults: dict[str, Any] = {"sentence_avg": False, "tpu": False}
    if family == "translation":
        defaults |= {"label_smoothing": 0.1, "report_accuracy": True}
    config = SimpleNamespace(**{**defaults, **options})
    built: FairseqCriterion = cls.build_criterion(
        config, SimpleNamespace(target_dictionary=dictionary)
    )
    return built


def build(family: str, **options: Any) -> nn.Module:
    if family == "lm":
        return build_lm(**options)
    if family == "masked":
        model: nn.Module = roberta.build(**options)
        nn.init.normal_(model.encoder.lm_head.bias)
        return model
    return translation.build(**options)


def batch(family: str) -> Sample:
    """Rows of unequal length, as the family's task collates them."""
    if family == "translation":
        source = translation.batch(translation.sources([9, 6, 4]), left=True)
        target = pad_rows(translation.targets(3, 8), [8, 5, 7], left=False)
        net_input = {
            "src_tokens": source,
            "src_lengths": translation.lengths_of(source),
            "prev_output_tokens": target,
        }
        wanted = pad_rows(translation.targets(3, 9)[:, 1:], [8, 5, 7], left=False)
    else:
        tokens = pad_rows(random_tokens(3, 12), [12, 7, 9], left=False)
        net_input = {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(1)}
        wanted = random_tokens(3, 12).masked_fill(tokens == PAD, PAD)
        if family == "masked":
            wanted[:, ::3] = PAD
    return {
        "net_input": net_input,
        "target": wanted,
        "ntokens": int(wanted.ne(PAD).sum()),
        "nsentences": 3,
    }


def run(
    used: FairseqCriterion, model: nn.Module, sample: Sample, **options: Any
) -> tuple[Tensor, Any, dict[str, Any], list[Tensor]]:
    model.zero_grad()
    loss, size, logs = used(model, sample, **options)
    slopes = torch.linspace(1, 2, loss.numel()).view_as(loss)
    (loss * slopes).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    assert len(gradients) == len(list(model.parameters()))
    return loss.detach(), size, logs, gradients


def summary(used: FairseqCriterion, logs: list[dict[str, Any]]) -> dict[str, float]:
    """What fairseq shows of these logs."""
    with metrics.aggregate(new_root=True) as found:
        used.reduce_metrics(logs)
    return dict(found.get_smoothed_values())


def check_same(found: Any, expected: Any, tolerance: float = 1e-6) -> None:
    assert found[0].shape == expected[0].shape
    assert found[1] == expected[1]
    assert found[2].keys() == expected[2].keys()
    for key, value in expected[2].items():
        torch.testing.assert_close(
            torch.as_tensor(found[2][key]), torch.as_tensor(value), rtol=tolerance, atol=0
        )
    # In units of the largest: some, as those of keys' biases, are zero but for rounding.
    largest = max((gradient.abs().max() for gradient in expected[3]), default=torch.tensor(0.0))
    for one, other in zip(found[3], expected[3], strict=True):
        assert one.dtype == other.dtype
        assert (one - other).abs().max() <= tolerance * largest


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("tied", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_is_fairseqs(family: str, tied: int, sentence_avg: bool) -> None:
    model, sample = build(family, **TIED[family][tied]), batch(family)
    ours, theirs = (criterion(family, k, sentence_avg=sentence_avg) for k in ("blockwise_", ""))
    found, expected = (run(used, model, sample) for used in (ours, theirs))
    check_same(found, expected)
    shown = summary(theirs, [expected[2]] * 2)
    assert summary(ours, [found[2]] * 2) == pytest.approx(shown, rel=1e-6)
    assert "features_only" not in sample["net_input"]


@pytest.mark.parametrize("family", ["lm", "translation"])
def test_losses_of_single_tokens_are_fairseqs(family: str) -> None:
    model, sample = build(family), batch(family)
    found, expected = (
        run(criterion(family, kind), model, sample, reduce=False) for kind in ("blockwise_", "")
    )
    check_same(found, expected)
    assert found[0].numel() == sample["target"].numel()


@pytest.mark.parametrize("family", FAMILIES)
def test_validation_is_fairseqs(family: str) -> None:
    model, sample = build(family), batch(family)
    with torch.no_grad():
        found, expected = (
            (*criterion(family, kind)(model, sample), []) for kind in ("blockwise_", "")
        )
    check_same(found, expected)
    assert not found[0].requires_grad


def test_a_prefix_is_left_out_as_by_fairseq() -> None:
    model, sample = build("translation"), batch("translation")
    found, expected = (
        run(criterion("translation", kind, ignore_prefix_size=2), model, sample)
        for kind in ("blockwise_", "")
    )
    check_same(found, expected)


def test_fairseqs_own_models_have_it_too() -> None:
    for family, model in (
        ("lm", build_fairseq_lm()),
        ("masked", roberta.build_fairseq()),
        ("translation", translation.build_fairseq()),
    ):
        sample = batch(family)
        found, expected = (
            run(criterion(family, kind), model, sample) for kind in ("blockwise_", "")
        )
        check_same(found, expected)


def test_a_batch_without_masked_tokens_has_no_loss_and_all_gradients() -> None:
    """Processes wait for each other's gradients, be there something to predict or not."""
    model, sample = build("masked"), batch("masked")
    sample["target"] = torch.full_like(sample["target"], PAD)
    found, expected = (run(criterion("masked", kind), model, sample) for kind in ("blockwise_", ""))
    check_same(found, expected)
    assert found[0] == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_autocast_rounds_less_than_fairseqs(family: str) -> None:
    model, sample = build(family), batch(family)
    exact = criterion(family, "")(model, sample)[0]
    with torch.autocast("cpu", torch.bfloat16):
        found = run(criterion(family), model, sample)
    assert found[0].dtype == torch.float32
    assert abs(found[0] / exact - 1) < 16 * torch.finfo(torch.bfloat16).eps
    assert all(gradient.isfinite().all() for gradient in found[3])


@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision(family: str) -> None:
    """A bfloat16 model and a scaled loss, as --bf16 and --fp16 have them."""
    model, sample = build(family).bfloat16(), batch(family)
    found, expected = (run(criterion(family, k), model, sample) for k in ("blockwise_", ""))
    check_same(found, expected, 2e-2)


@pytest.mark.parametrize("family", ["lm", "translation"])
def test_an_adaptive_softmax_is_refused_by_name(family: str) -> None:
    model, sample = build(family, adaptive_softmax_cutoff="10,20"), batch(family)
    message = f"`adaptive_softmax_cutoff` must be unset with the criterion .*{NAMES[family]},"
    with pytest.raises(ValueError, match=message):
        criterion(family)(model, sample)


def test_an_output_that_is_no_linear_layer_is_refused() -> None:
    model, sample = build("lm"), batch("lm")
    model.decoder.output_projection = nn.Sequential(model.decoder.output_projection)
    with pytest.raises(ValueError, match="`criterion` must be one that takes logits"):
        criterion("lm")(model, sample)


def test_tpus_are_refused() -> None:
    config = MaskedLmConfig()
    config.tpu = True
    cls = CRITERION_REGISTRY["blockwise_masked_lm"]
    with pytest.raises(ValueError, match=r"`tpu` must be off .* use the criterion masked_lm"):
        cls.build_criterion(config, SimpleNamespace(target_dictionary=DICTIONARY))


def test_logits_are_never_made() -> None:
    """Neither N x V nor V x N: the largest tensor beside the weight's gradient is a block."""
    for family in FAMILIES:
        model, sample = build(family), batch(family)

        def refuse(*_: Any) -> None:
            raise AssertionError("the output layer ran")

        layer = model.encoder.lm_head if family == "masked" else model.decoder.output_projection
        layer.register_forward_pre_hook(refuse)
        run(criterion(family, report_accuracy=True), model, sample)
        with pytest.raises(AssertionError, match="the output layer ran"):
            run(criterion(family, ""), model, sample)


@pytest.fixture
def _group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    store = f"file://{tmp_path / 'store'}"
    distributed.init_process_group("gloo", init_method=store, world_size=1, rank=0)
    yield
    distributed.destroy_process_group()


class _Proxy(nn.Module):
    """What fairseq puts around PyTorch's data parallelism: attributes of the model inside."""

    def __init__(self, parallel: DistributedDataParallel) -> None:
        super().__init__()
        self.parallel = parallel

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.parallel(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("parallel", "training"):
            return super().__getattr__(name)
        return getattr(self._modules["parallel"].module, name)


@pytest.mark.usefixtures("_group")
@pytest.mark.parametrize("tied", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_data_parallelism_finds_every_gradient(family: str, tied: int) -> None:
    """The output layer is used beside the forward pass that PyTorch watches."""
    model, sample = build(family, **TIED[family][tied]), batch(family)
    expected = run(criterion(family), model, sample)
    parallel = _Proxy(DistributedDataParallel(model))
    for _ in range(2):  # the second pass raises where the first left a parameter out
        model.zero_grad()
        loss, *_ = criterion(family)(parallel, sample)
        loss.backward()
    for parameter, gradient in zip(model.parameters(), expected[3], strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
