"""The compiled kernel against the definition in float64, and against the PyTorch loop."""

import ctypes
import os

import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from fairseq_plugins.kernels import (
    LinearState,
    causal_linear_attention,
    naive_linear_attention,
    native,
)
from fairseq_plugins.kernels.backend import VARIABLE

pytestmark = pytest.mark.skipif(
    native.library() is None, reason="the package was installed without a C++ compiler"
)
VECTOR = "FAIRSEQ_PLUGINS_VECTOR"  # the most floats in a vector
LIBRARY = os.environ.get("NATIVE_LIBRARY")  # another build, see `make test-native`


@pytest.fixture(autouse=True, scope="module")
def _library():
    if not LIBRARY:
        yield
        return
    found = ctypes.CDLL(LIBRARY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda: found)
        yield


def inputs(length, features=16, values=32, heads=2, dtype=torch.float32):
    """q, k, v as a model has them: (B, T, H, D) seen as (B, H, T, D); denominators change sign."""
    sizes = (features, features, values)
    q, k, v = (torch.randn(2, length, heads, size).transpose(1, 2) for size in sizes)
    return [(x + shift).to(dtype) for x, shift in zip((q, k, v), (0.3, 0.3, 0.0), strict=True)]


def start_of(features=16, values=32, heads=2):
    shapes = ((2, heads, features, values), (2, heads, features), (2, heads, 1))
    return LinearState(*(torch.rand(shape) + 0.1 for shape in shapes))


def run(tensors, state, **options):
    """Output and last state, and gradients of both to the inputs and the first state."""
    leaves = [x.detach().requires_grad_() for x in (*tensors, *state)]
    output, last = causal_linear_attention(
        *leaves[:3], initial_state=LinearState(*leaves[3:]), return_state=True, **options
    )
    results = [output, *last] if options.get("normalize", True) else [output, last.kv]
    torch.manual_seed(3)
    loss = sum((x * torch.randn(x.shape)).sum() for x in results)
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [x.detach() for x in results] + [x for x in grads if x is not None]


def assert_near(actual, expected, tolerance):
    assert len(actual) == len(expected)
    for index, (one, other) in enumerate(zip(actual, expected, strict=True)):
        size = other.double().abs().max().clamp(min=1.0)
        error = (one.double() - other.double()).abs().max() / size
        assert error <= tolerance, (index, float(error))


@pytest.mark.parametrize("length", [1, 5, 64, 65, 131, 200])
@pytest.mark.parametrize(("features", "values"), [(16, 16), (32, 64), (48, 16)])
@pytest.mark.parametrize("vector", ["4", "8", "16"])
def test_it_is_the_definition(vector, features, values, length, monkeypatch):
    monkeypatch.setenv(VECTOR, vector)
    torch.manual_seed(length)
    tensors = inputs(length, features, values)
    tensors[0], tensors[1] = tensors[0].exp(), tensors[1].exp()  # a denominator as in practice
    leaves = [x.detach().requires_grad_() for x in tensors]
    wide = [x.detach().double().requires_grad_() for x in tensors]
    monkeypatch.setenv(VARIABLE, "native")
    results = []
    for each, attend in ((leaves, causal_linear_attention), (wide, naive_linear_attention)):
        causal = {"causal": True} if attend is naive_linear_attention else {}
        output = attend(*each, min_cosine=0.2, **causal)
        results.append([output, *torch.autograd.grad(output.square().sum(), each)])
    assert_near(*results, 2e-6 * features)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_cosine": 0.3},
        {"min_cosine": 5.0},  # beyond any cosine: every denominator is the floor
        {"epsilon": 0.5},
        {"normalize": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("vector", ["4", "8", "16"])
def test_it_is_the_loop_with_states_and_every_denominator(vector, options, monkeypatch):
    monkeypatch.setenv(VECTOR, vector)
    torch.manual_seed(5)
    tensors, state = [x.abs() for x in inputs(100)], start_of()
    results = []
    for backend in ("native", "torch"):
        monkeypatch.setenv(VARIABLE, backend)
        results.append(run(tensors, state, **options))
    assert_near(*results, 1e-5)


@pytest.mark.parametrize("options", [{}, {"min_cosine": 0.3}, {"epsilon": 0.5}], ids=str)
def test_a_step_without_gradients_is_the_same_and_keeps_the_state_before(options, monkeypatch):
    torch.manual_seed(6)
    tensors, state = inputs(1), start_of()
    kept, results = [x.clone() for x in state], []
    for backend in ("native", "torch"):
        monkeypatch.setenv(VARIABLE, backend)
        with torch.no_grad():
            output, last = causal_linear_attention(
                *tensors, initial_state=state, return_state=True, **options
            )
        results.append([output, *last])
    assert_near(*results, 1e-6)
    assert not torch.equal(results[0][0], results[1][0])  # one is the library's
    assert all(map(torch.equal, state, kept))


def test_a_step_in_forward_mode_keeps_the_tangents(monkeypatch):
    torch.manual_seed(8)
    (q, k, v), state = inputs(1), start_of()
    tangents = []
    for backend in ("native", "torch"):
        monkeypatch.setenv(VARIABLE, backend)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(q, torch.ones_like(q))
            output = causal_linear_attention(dual, k, v, initial_state=state)
            tangents.append(forward_ad.unpack_dual(output).tangent)
    assert_near(tangents[:1], tangents[1:], 1e-6)


@pytest.mark.parametrize("length", [1, 70])
def test_a_wider_state_is_not_read_as_float32(length):
    torch.manual_seed(7)
    tensors, state = [x.abs() for x in inputs(length)], start_of()
    wide = LinearState(*(x.double() for x in state))
    options = {"min_cosine": 0.3, "return_state": True}
    with torch.no_grad():
        results = [
            causal_linear_attention(*tensors, initial_state=one, **options) for one in (wide, state)
        ]
    assert_near(*([output, *last] for output, last in results), 1e-5)


@pytest.mark.parametrize("length", [0, 1, 70])
def test_a_state_of_fewer_rows_or_features_is_refused(length):
    tensors, state = inputs(length), start_of()
    for name, tensor in state._asdict().items():
        for wrong in (tensor[:1], torch.cat((tensor, tensor), -1)):
            with pytest.raises(ValueError, match=rf"`initial_state\.{name}` must be \(2, 2, "):
                causal_linear_attention(*tensors, initial_state=state._replace(**{name: wrong}))


@pytest.mark.parametrize("length", [0, 1, 70])
@pytest.mark.parametrize("how", ["narrower", "of two dtypes", "elsewhere"])
def test_a_state_that_it_would_misread_is_refused(length, how):
    """The library reads a state by its address, as float32."""
    tensors, state = inputs(length), start_of()
    if how == "narrower":
        wrong = [LinearState(*(x.bfloat16() for x in state))]
    elif how == "of two dtypes":
        wrong = [state._replace(**{name: x.double()}) for name, x in state._asdict().items()]
    else:
        wrong = [state._replace(**{name: x.to("meta")}) for name, x in state._asdict().items()]
    for one in wrong:
        with pytest.raises(
            ValueError, match=r"`initial_state\.\w+` must be torch\.float\d+ on cpu"
        ):
            causal_linear_attention(*tensors, initial_state=one)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("options", [{}, {"min_cosine": 0.3}, {"normalize": False}])
def test_the_default_dtype_changes_nothing(dtype, options):
    """A buffer in 16 bits would be half as large as what is written to it."""
    torch.manual_seed(6)
    tensors, state = inputs(300), start_of()
    # With features that are no neighbours in memory.
    tensors = [x.mT.contiguous().mT for x in tensors]
    expected = run(tensors, state, **options)
    torch.set_default_dtype(dtype)
    try:
        actual = run(tensors, state, **options)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(x.dtype == torch.float32 for x in actual)
    assert_near(actual[:2], expected[:2], 0.0)


def test_it_is_what_runs(monkeypatch):
    """Rounding differs from the loop's, so equality to the bit would mean that it did not run."""
    torch.manual_seed(1)
    tensors = [x.abs() for x in inputs(90)]
    default = causal_linear_attention(*tensors)
    monkeypatch.setenv(VARIABLE, "torch")
    assert not torch.equal(default, causal_linear_attention(*tensors))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_never_hidden(bad):
    """Other heads and rows are untouched; earlier tokens of the chunk may be, as in the loop."""
    tensors = [x.abs() for x in inputs(150)]
    for x in tensors:
        x[0, 1, 100] = bad
    finite = causal_linear_attention(*tensors, min_cosine=0.1).isfinite()
    assert not finite[0, 1, 100:].any()
    assert finite[0, 1, :64].all()
    assert finite[0, 0].all()
    assert finite[1].all()


def test_threads_and_strides_change_nothing():
    torch.manual_seed(2)
    tensors, state = [x.abs() for x in inputs(130, heads=5)], start_of(heads=5)
    expected = run(tensors, state, min_cosine=0.2)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = run(tensors, state, min_cosine=0.2)
    finally:
        torch.set_num_threads(threads)
    odd = [torch.stack((x, x), -1)[..., 0] for x in tensors]  # features are not neighbours
    assert all(map(torch.equal, expected, again))
    assert_near(run(odd, state, min_cosine=0.2), expected, 1e-6)


def test_no_sizes_beyond_it_and_no_fakes(monkeypatch):
    monkeypatch.setenv(VECTOR, "16")
    assert not native.fits(*(torch.rand(1, 1, 4, 9) for _ in range(3)))
    assert not native.fits(*(torch.rand(1, 1, 0, 16) for _ in range(3)))
    assert not native.fits(*(torch.rand(1, 1, 4, 16, dtype=torch.float64) for _ in range(3)))
    assert not native.fits(*(torch.nn.Parameter(torch.rand(1, 1, 4, 16)) for _ in range(3)))


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.5},
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in ({}, {"min_cosine": 0.2}, {"normalize": False})
        ),
    ],
    ids=str,
)
def test_a_compiled_graph_has_it_as_one_operator(options):
    """To the bit what runs without a graph, with states and gradients, at two lengths."""
    torch._dynamo.reset()
    compiled = torch.compile(run_output, backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (70, 90):
        torch.manual_seed(length)
        leaves = [x.abs().requires_grad_() for x in (*inputs(length), *start_of())]
        results = [call(leaves, options) for call in (run_output, compiled)]
        grads = [torch.autograd.grad(x.square().sum(), leaves, allow_unused=True) for x in results]
        assert torch.equal(*results)
        # Norms are unused without a graph and have gradients of 0 in one.
        pairs = [pair for pair in zip(*grads, strict=True) if pair[0] is not None]
        assert len(pairs) >= 4 and all(map(torch.equal, *zip(*pairs, strict=True)))


def run_output(leaves, options):
    state = LinearState(*leaves[3:])
    output, last = causal_linear_attention(
        *leaves[:3], initial_state=state, return_state=True, **options
    )
    return output + last.kv.sum()


def test_sizes_beyond_it_are_one_operator_of_a_graph_too():
    torch._dynamo.reset()
    leaves = [x.abs().requires_grad_() for x in inputs(70, features=9, values=5)]
    compiled = torch.compile(causal_linear_attention, backend="aot_eager", fullgraph=True)
    results = [call(*leaves) for call in (causal_linear_attention, compiled)]
    grads = [torch.autograd.grad(x.square().sum(), leaves) for x in results]
    assert torch.equal(*results) and all(map(torch.equal, *grads))


@pytest.mark.parametrize(
    ("options", "is_dense"), [({"min_cosine": 0.2}, True), ({"normalize": False}, False)], ids=str
)
@pytest.mark.parametrize("narrow", ["qkv", "v"])
def test_a_compiled_graph_has_the_dtypes_of_half_precision(narrow, options, is_dense):
    torch._dynamo.reset()
    torch.manual_seed(9)
    tensors = [
        x.abs().to(torch.bfloat16 if name in narrow else x.dtype)
        for name, x in zip("qkv", inputs(70), strict=True)
    ]
    leaves = [(x.contiguous() if is_dense else x).requires_grad_() for x in tensors]
    options = {**options, "initial_state": start_of(), "return_state": True}
    compiled = torch.compile(causal_linear_attention, backend="aot_eager", fullgraph=True)
    calls = (causal_linear_attention, compiled)
    with torch.no_grad():
        (one, _), (other, _) = (call(*leaves, **options) for call in calls)
    assert one.dtype == other.dtype
    results = [call(*leaves, **options) for call in calls]
    outputs = [output for output, _ in results]
    assert outputs[0].dtype == outputs[1].dtype
    grads = [torch.autograd.grad(x.float().square().sum(), leaves) for x in outputs]
    assert_near(*([output, state.kv] for output, state in results), 0.01)
    assert_near(*grads, 0.01)


def test_the_operator_is_one_of_pytorch():
    leaves = [torch.rand(1, 2, 9, 8, requires_grad=True) for _ in range(3)]
    state = [
        torch.rand(shape, requires_grad=True) for shape in ((1, 2, 8, 8), (1, 2, 8), (1, 2, 1))
    ]
    operator = torch.ops.fairseq_plugins.linear_attention
    torch.library.opcheck(operator, (*leaves, *state, 0.1, None, 64, True))
    torch.library.opcheck(operator, (*leaves, *state, None, None, 64, True))


def test_an_exported_program_runs_without_it():
    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return causal_linear_attention(q, k, v)

    tensors = tuple(x.abs() for x in inputs(70))
    program = torch.export.export(Attention(), tensors)
    assert not any("fairseq_plugins" in str(node.target) for node in program.graph.nodes)
    assert_near([program.module()(*tensors)], [causal_linear_attention(*tensors)], 1e-5)


def test_a_recorded_graph_has_no_values_of_the_inputs_that_it_was_recorded_with():
    def gradients(*tensors):
        leaves = [x.detach().requires_grad_() for x in tensors]
        output = causal_linear_attention(*leaves)
        return output, *torch.autograd.grad(output.square().sum(), leaves)

    first, other = ([x.abs() for x in inputs(70)] for _ in range(2))
    graph = make_fx(gradients)(*first)
    assert_near(graph(*other), gradients(*other), 1e-5)


def test_a_recorded_graph_of_symbolic_sizes_takes_other_lengths():
    def attend(q, k, v):
        return causal_linear_attention(q, k, v)

    graph = make_fx(attend, tracing_mode="symbolic")(*inputs(64))
    for length in (5, 64, 70, 128):
        tensors = [x.abs() for x in inputs(length)]
        assert_near([graph(*tensors)], [causal_linear_attention(*tensors)], 1e-5)
