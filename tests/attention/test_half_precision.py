"""bfloat16 and float16 only round: the same result, near the first position and near 10,000."""

import pytest
import torch
from attention_cases import DIRECTED, FAR, FAR_OUT, Layer, count, error, tokens

# Rounding of q, k, v and the weights, each once: a few units of the dtype's precision.
UNITS = 8
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


# The cosine transform sums positive features up in one, which turns once in six positions: encoded
# denominators come near zero, where rounding is anything. Its scores are as exact as others'.
NEAR_ZERO = {"lrpe_dct"}


@DTYPES
@pytest.mark.parametrize(("name", "attention", "causal"), DIRECTED)
def test_half_precision_is_the_same_result(name, attention, causal, dtype):
    _check(name, attention, causal, dtype, 0)


@DTYPES
@pytest.mark.parametrize(("name", "attention", "causal"), FAR_OUT)
def test_half_precision_is_the_same_result_far_out(name, attention, causal, dtype):
    _check(name, attention, causal, dtype, FAR)


def _check(name, attention, causal, dtype, start):
    near_zero = attention == "linear" and name in NEAR_ZERO
    options = {"normalizer": "plain"} if near_zero else {}
    wide = Layer(name, attention, causal=causal, dtype=torch.float32, **options)
    with torch.no_grad():
        for projection in (wide.q_proj, wide.k_proj, wide.v_proj):
            for parameter in projection.parameters():
                parameter.copy_(parameter.to(dtype))
    narrow = Layer(name, attention, causal=causal, dtype=dtype, **options)
    narrow.load_state_dict(wide.state_dict())
    x = tokens(2, 12, dtype)
    with torch.no_grad():
        expected = wide(x.float(), count(12, start))
        if name == "xpos" and dtype == torch.float16 and start:
            # float16 ends at 65,504, which its scale reaches at such a position.
            with pytest.raises(ValueError, match="float16"):
                narrow(x, count(12, start))
            return
        actual = narrow(x, count(12, start))
    assert actual.dtype == dtype
    assert error(actual, expected) <= UNITS * torch.finfo(dtype).eps
