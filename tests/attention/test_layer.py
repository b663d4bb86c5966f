"""The layer of plain PyTorch: what nn.MultiheadAttention does, and what it does not."""

import warnings
from functools import partial

import pytest
import torch
from attention_cases import CAUSAL as CAUSAL_PAIRS
from attention_cases import DIRECTED, hooks_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairseq_plugins.attention import Documents, PositionalMultiheadAttention, make_positions
from fairseq_plugins.attention.linear import LinearAttention
from fairseq_plugins.encodings import ENCODINGS, IncompatibleEncodingError, Stochastic

WIDTH, HEADS, LENGTH = 16, 4, 7
INSIDE = [case for case in DIRECTED if "embed" not in hooks_of(case[0])]
DECODING = [case for case in CAUSAL_PAIRS if "embed" not in hooks_of(case[0])]
# One name of each class is in every run; those that preset other options of it are slow.
FIRST = {entry.cls: name for name, entry in reversed(ENCODINGS.items())}
SOME = ["rope", "lrpe_type2", "per", "t5", "alibi", "shaw", "deberta", "xl", "fire", "spe"]


def pairs(*names: str) -> list[tuple[str, str, bool]]:
    return [case for case in INSIDE if case[0] in names]


def often(cases: list) -> list:
    """The same cases, of which most names run in `make test-slow` alone."""
    names = {*FIRST.values(), "lrpe_type2"}
    return [
        pytest.param(*case, marks=[] if case[0] in names else [pytest.mark.slow]) for case in cases
    ]


def layer(
    name: str = "none", attention: str = "vanilla", **options
) -> PositionalMultiheadAttention:
    torch.manual_seed(4)
    options = {"max_positions": 64, **options}
    made = PositionalMultiheadAttention(
        WIDTH, HEADS, position_encoding=name, attention=attention, **options
    )
    return made.double().eval()


def tokens(batch: int = 2, length: int = LENGTH, width: int = WIDTH) -> Tensor:
    torch.manual_seed(8)
    return torch.randn(batch, length, width, dtype=torch.float64)


def run(module: nn.Module, *args: object, **options: object) -> Tensor:
    """The output, with the same draws every time."""
    torch.manual_seed(2)
    return module(*args, **options)[0]


def twin(**options: object) -> tuple[nn.MultiheadAttention, PositionalMultiheadAttention]:
    """PyTorch's module, and ours with its weights."""
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    ours = layer(**options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


PADDING = torch.tensor([[False] * LENGTH, [True] * 2 + [False] * (LENGTH - 2)])
HIDDEN = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(3)
ADDED = torch.linspace(-1, 1, 2 * HEADS * LENGTH * LENGTH).double()
MINUS = {"dtype": torch.float64}
CALLS = {
    "plain": {},
    "without weights": {"need_weights": False},
    "weights of heads": {"average_attn_weights": False},
    "padding": {"key_padding_mask": PADDING},
    "float padding": {
        "key_padding_mask": torch.zeros(2, LENGTH, **MINUS).masked_fill(PADDING, float("-inf"))
    },
    "added to keys": {"key_padding_mask": torch.linspace(-1, 1, 2 * LENGTH, **MINUS).view(2, -1)},
    "hidden": {"attn_mask": HIDDEN},
    "added": {"attn_mask": ADDED[: LENGTH**2].view(LENGTH, LENGTH)},
    "added per head": {"attn_mask": ADDED.view(2 * HEADS, LENGTH, LENGTH)},
    "hidden per head": {"attn_mask": HIDDEN.expand(2 * HEADS, -1, -1)},
    "both": {
        "attn_mask": ADDED.view(2 * HEADS, LENGTH, LENGTH),
        "key_padding_mask": torch.zeros(2, LENGTH, **MINUS).masked_fill(PADDING, float("-inf")),
    },
}


@pytest.mark.parametrize("call", CALLS)
def test_without_an_encoding_it_is_pytorchs_module(call: str) -> None:
    theirs, ours = twin()
    x = tokens()
    expected, actual = theirs(x, x, x, **CALLS[call]), ours(x, x, x, **CALLS[call])
    torch.testing.assert_close(actual[0], expected[0])
    assert (actual[1] is None) == (expected[1] is None)
    if expected[1] is not None:
        torch.testing.assert_close(actual[1], expected[1])


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 6, "vdim": 10}])
def test_keys_of_another_sequence_and_width(options: dict[str, object]) -> None:
    theirs, ours = twin(**options)
    widths = (options.get("kdim", WIDTH), options.get("vdim", WIDTH))
    key, value = (tokens(length=5, width=width) for width in widths)
    expected = theirs(tokens(), key, value)
    for one, other in zip(ours(tokens(), key, value), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_one_sequence_without_a_batch() -> None:
    theirs, ours = twin()
    x = tokens()[0]
    for one, other in zip(ours(x, x, x), theirs(x, x, x), strict=True):
        torch.testing.assert_close(one, other)


def test_it_begins_with_pytorchs_bounds() -> None:
    made = PositionalMultiheadAttention(64, 4)
    theirs = nn.MultiheadAttention(64, 4)
    bound = theirs.in_proj_weight.abs().max()
    for projection in (made.q_proj, made.k_proj, made.v_proj):
        torch.testing.assert_close(projection.weight.abs().max(), bound, rtol=0.02, atol=0)
        assert not projection.bias.any()


@pytest.mark.parametrize("training", [True, False])
def test_inside_pytorchs_encoder_layer(training: bool) -> None:
    theirs = nn.TransformerEncoderLayer(WIDTH, HEADS, 8, dropout=0.0, batch_first=True).double()
    ours = nn.TransformerEncoderLayer(WIDTH, HEADS, 8, dropout=0.0, batch_first=True).double()
    ours.self_attn = layer()
    ours.load_state_dict(theirs.state_dict())
    x = tokens()
    options = {"src_key_padding_mask": PADDING}
    expected = theirs.train(training)(x, **options)
    actual = ours.train(training)(x, **options)
    # Rows that are padded are anything.
    torch.testing.assert_close(actual[~PADDING], expected[~PADDING])


@pytest.mark.parametrize(("name", "attention", "causal"), often(INSIDE))
def test_packed_documents_are_as_each_alone(name: str, attention: str, causal: bool) -> None:
    module, x, sizes = layer(name, attention, causal=causal), tokens(1, 10), (4, 1, 5)
    bounds = torch.tensor([0, 4, 5, 10], dtype=torch.int32)
    packed = run(module, x, x, x, cu_seqlens=bounds)
    alone = [run(module, part, part, part) for part in x.split(sizes, dim=1)]
    torch.testing.assert_close(packed, torch.cat(alone, 1))
    assert torch.equal(run(module, x, x, x, cu_seqlens=bounds, max_seqlen=5), packed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key_padding_mask", torch.zeros(1, LENGTH, dtype=torch.bool)),
        ("attn_mask", torch.zeros(LENGTH, LENGTH, dtype=torch.bool)),
        ("query_positions", torch.arange(LENGTH).unsqueeze(0)),
        ("key_positions", torch.arange(LENGTH).unsqueeze(0)),
    ],
)
def test_packed_documents_say_positions_and_masks_themselves(name: str, value: Tensor) -> None:
    x = tokens(1)
    with pytest.raises(ValueError, match=f"`{name}` must be None with `cu_seqlens`"):
        layer("shaw")(x, x, x, cu_seqlens=torch.tensor([0, 3, LENGTH]), **{name: value})


def test_an_empty_document_and_the_weights_of_packed_ones() -> None:
    module, x = layer("alibi", causal=True), tokens(1, 6)
    output, weights = module(x, x, x, cu_seqlens=torch.tensor([0, 4, 4, 6]))
    plain, _ = module(x, x, x, cu_seqlens=torch.tensor([0, 4, 6]))
    torch.testing.assert_close(output, plain)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 6).double())
    assert not weights[0, 4:, :4].any() and not weights[0, :4, 4:].any()
    assert weights[0, 5, 4] > 0


def test_documents_of_a_row() -> None:
    documents = Documents.of(torch.tensor([0, 2, 5]), 5)
    assert documents.positions.tolist() == [0, 1, 0, 1, 2]
    assert documents.document.tolist() == [0, 0, 1, 1, 1]
    assert documents.lengths.tolist() == [2, 3]
    x = torch.arange(10.0).view(1, 5, 2)
    assert torch.equal(documents.together(documents.apart(x)), x)


@pytest.mark.parametrize("bounds", [[0, 3], [1, 5], [0, 4, 3, 5], [5]])
def test_bounds_of_documents_are_checked(bounds: list[int]) -> None:
    with pytest.raises(ValueError, match="`cu_seqlens` must"):
        Documents.of(torch.tensor(bounds), 5)


@pytest.mark.parametrize(("name", "attention", "causal"), pairs(*SOME))
def test_grouped_keys_are_repeated_ones(name: str, attention: str, causal: bool) -> None:
    grouped = layer(name, attention, causal=causal, num_kv_heads=2)
    whole = layer(name, attention, causal=causal)
    state = grouped.state_dict()
    for kind in ("weight", "bias"):
        for part in ("k_proj", "v_proj"):
            heads = state[f"{part}.{kind}"].unflatten(0, (2, WIDTH // HEADS))
            state[f"{part}.{kind}"] = heads.repeat_interleave(2, 0).flatten(0, 1)
    whole.load_state_dict(state)
    x = tokens()
    torch.testing.assert_close(run(grouped, x, x, x), run(whole, x, x, x))


@pytest.mark.parametrize(("name", "attention"), often(DECODING))
def test_steps_are_one_pass(name: str, attention: str) -> None:
    module, x = layer(name, attention, causal=True, num_kv_heads=2), tokens()
    whole = run(module, x, x, x, key_padding_mask=PADDING)
    torch.manual_seed(2)
    state, parts = None, []
    for part, padding in zip(x.split((3, 1, 3), 1), PADDING.split((3, 1, 3), 1), strict=True):
        output, state = module.step(part, state, padding)
        parts.append(output)
    torch.testing.assert_close(torch.cat(parts, 1)[~PADDING], whole[~PADDING])


GRAPHS = [
    pytest.param(("rope", "vanilla", False)),
    pytest.param(("lrpe_type2", "linear", True), marks=pytest.mark.slow),
    pytest.param(("alibi", "vanilla", True), marks=pytest.mark.slow),
    pytest.param(("xl", "vanilla", False), marks=pytest.mark.slow),
    pytest.param(("cosformer", "linear", True), marks=pytest.mark.slow),
    pytest.param(("rope", "linear", False), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("case", GRAPHS)
def test_one_graph_of_it(case: tuple[str, str, bool]) -> None:
    torch._dynamo.reset()
    name, attention, causal = case
    module, x = layer(name, attention, causal=causal, num_kv_heads=2), tokens()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    weights = {"need_weights": False}
    torch.testing.assert_close(
        run(compiled, x, x, x, key_padding_mask=PADDING, **weights),
        run(module, x, x, x, key_padding_mask=PADDING, **weights),
    )
    row, bounds = tokens(1, 6), torch.tensor([0, 2, 6])
    packed = {"cu_seqlens": bounds, "max_seqlen": 4, **weights}
    torch.testing.assert_close(
        run(compiled, row, row, row, **packed), run(module, row, row, row, **packed)
    )


class SelfAttention(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.inner(x, x, x, key_padding_mask=padding, need_weights=False)[0]


@pytest.mark.parametrize("case", GRAPHS)
def test_it_is_exported_for_any_batch(case: tuple[str, str, bool]) -> None:
    name, attention, causal = case
    module = SelfAttention(layer(name, attention, causal=causal, num_kv_heads=2))
    batch = torch.export.Dim("batch", min=1, max=64)
    example = (tokens(), PADDING)
    more = (tokens(3), torch.cat((PADDING, PADDING[1:])))
    with torch.no_grad():
        program = torch.export.export(module, example, dynamic_shapes=({0: batch}, {0: batch}))
        torch.testing.assert_close(program.module()(*more), module(*more))


def test_torchscript_is_refused() -> None:
    with pytest.raises(TypeError, match="TorchScript is not supported"):
        torch.jit.script(nn.Sequential(layer("rope")))


@pytest.mark.parametrize(
    ("case", "traced", "lengths"),
    [
        (("rope", "vanilla", True), 12, (2, 300)),
        (("alibi", "vanilla", True), 12, (2, 127)),
        (("alibi", "vanilla", True), 200, (128, 300)),
        (("rope", "linear", False), 12, (2, 300, 1025)),
        (("rope", "linear", True), 12, (2, 63)),
        (("rope", "linear", True), 100, (64, 300, 1025)),
    ],
)
def test_it_is_exported_for_lengths(
    case: tuple[str, str, bool], traced: int, lengths: tuple[int, ...]
) -> None:
    """As docs/layers.md says; beyond 1,024 tokens a warning divides no graph in two."""
    name, attention, causal = case
    module = SelfAttention(layer(name, attention, causal=causal))

    def example(length: int) -> tuple[Tensor, Tensor]:
        return tokens(2, length), torch.zeros(2, length, dtype=torch.bool)

    shapes = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        program = torch.export.export(module, example(traced), dynamic_shapes=(shapes, shapes))
        for length in lengths:
            inputs = example(length)
            expected = module(*inputs)
            error = (program.module()(*inputs) - expected).abs().max()
            assert error <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("name", ["learned", "base", "cnn"])
def test_what_acts_on_the_input_of_a_model_is_refused(name: str) -> None:
    with pytest.raises(IncompatibleEncodingError, match="acts on the input of a model"):
        layer(name, causal=True)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_kv_heads": 3}, "`num_kv_heads` must divide num_heads=4"),
        ({"num_kv_heads": 0}, "`num_kv_heads` must be a positive integer"),
        ({"add_bias_kv": True}, "`add_bias_kv` must be False"),
        ({"add_zero_attn": True}, "`add_zero_attn` must be False"),
        ({"batch_first": False}, "`batch_first` must be True"),
        ({"attention": "linear", "dropout": 0.1}, "`dropout` must be 0 under linear"),
        (
            {"dropout": 0.5, "attention_options": {"dropout": 0.1}},
            r"`dropout` must be 0 beside that of `attention_options`, which is 0\.1, but is 0\.5",
        ),
        ({"name": "rope", "bose": 3}, "rope has no option `bose`"),
        ({"attention": "cubic"}, "`attention` .* must be one of"),
    ],
)
def test_options_are_checked(options: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        layer(**options)


@pytest.mark.parametrize("said", [{"dropout": 0.1}, {"attention_options": {"dropout": 0.1}}])
def test_dropout_may_be_said_in_either_place(said: dict[str, object]) -> None:
    assert layer(**said).attention.dropout == 0.1


WHOLE = torch.ones(2, LENGTH, dtype=torch.long)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        ({"key_padding_mask": WHOLE}, "`key_padding_mask` must be bool.* torch.int64"),
        ({"key_padding_mask": PADDING[:, :3]}, r"`key_padding_mask` must be \(2, 7\)"),
        ({"attn_mask": HIDDEN.long()}, "`attn_mask` must be bool.* torch.int64"),
        ({"attn_mask": HIDDEN[:3]}, r"`attn_mask` must be \(7, 7\)"),
        ({"attn_mask": HIDDEN.expand(5, -1, -1)}, r"`attn_mask` must be \(7, 7\)"),
        ({"is_causal": True}, "`is_causal` must be False"),
        ({"cu_seqlens": torch.tensor([0, 7])}, "`cu_seqlens` needs one packed row"),
        ({"max_seqlen": 7}, "`max_seqlen` must be None without cu_seqlens, but is 7"),
        ({"query_positions": torch.zeros(1, LENGTH)}, "`query_positions` must be int64"),
        ({"query_positions": torch.arange(LENGTH)}, r"`query_positions` must be \(B or 1, 7\)"),
        ({"key_positions": torch.zeros(1, 3).long()}, r"`key_positions` must be \(B or 1, 7\)"),
    ],
)
def test_calls_are_checked(call: dict[str, object], match: str) -> None:
    x = tokens()
    with pytest.raises(ValueError, match=match):
        layer("rope")(x, x, x, **call)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        ({"attn_mask": HIDDEN}, "`attn_mask` must be None for linear attention"),
        ({"need_weights": True}, "`need_weights` must be False for linear attention"),
        (
            {"key_padding_mask": torch.ones(2, LENGTH).double()},
            "`key_padding_mask` must be 0 or -inf for linear attention",
        ),
    ],
)
def test_linear_attention_refuses_what_needs_logits(call: dict[str, object], match: str) -> None:
    x = tokens()
    module = layer("rope", "linear")
    assert isinstance(module.attention, LinearAttention)
    with pytest.raises(ValueError, match=match):
        module(x, x, x, **call)
    minus = torch.zeros(2, LENGTH).double().masked_fill(PADDING, float("-inf"))
    torch.testing.assert_close(
        module(x, x, x, key_padding_mask=minus)[0], module(x, x, x, key_padding_mask=PADDING)[0]
    )
    assert module(x, x, x)[1] is None


def test_a_graph_of_linear_attention_refuses_other_values_of_padding_too() -> None:
    module, x = layer("rope", "linear"), tokens()
    graph = torch.compile(module, fullgraph=True, backend="eager")
    minus = torch.zeros(2, LENGTH).double().masked_fill(PADDING, float("-inf"))
    expected = module(x, x, x, key_padding_mask=PADDING)[0]
    torch.testing.assert_close(graph(x, x, x, key_padding_mask=minus)[0], expected)
    with pytest.raises(RuntimeError, match="`key_padding_mask` must be 0 or -inf for linear"):
        graph(x, x, x, key_padding_mask=minus.clamp(min=-1e9))


def test_a_causal_layer_takes_pytorchs_causal_mask_and_no_other_length() -> None:
    module, x = layer("rope", causal=True), tokens()
    future = nn.Transformer.generate_square_subsequent_mask(LENGTH).double()
    torch.testing.assert_close(
        module(x, x, x, attn_mask=future, is_causal=True)[0], module(x, x, x)[0]
    )
    torch.testing.assert_close(module(x, x, x, attn_mask=future)[0], module(x, x, x)[0])
    with pytest.raises(ValueError, match="`key` must have the 7 tokens of `query`"):
        module(x, x[:, :3], x[:, :3])
    with pytest.raises(ValueError, match="`causal` must be True"):
        layer("rope").step(x)


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_a_causal_layer_counts_its_keys_as_its_queries(attention: str) -> None:
    """Also where they are copies, as of a checkpoint, a scatter or a norm for each."""
    module, x = layer("rope", attention, causal=True), tokens()
    whole = module(x, x, x, key_padding_mask=PADDING)[0]
    copies = module(x, x.clone(), x.clone(), key_padding_mask=PADDING)[0]
    torch.testing.assert_close(copies[~PADDING], whole[~PADDING])
    row, bounds = x[:1], torch.tensor([0, 3, LENGTH])
    torch.testing.assert_close(
        module(row, row.clone(), row, cu_seqlens=bounds)[0],
        module(row, row, row, cu_seqlens=bounds)[0],
    )
    gradients = []
    for call in (module, partial(checkpoint, module, use_reentrant=True)):
        given = x.clone().requires_grad_()
        call(given, given, given, PADDING)[0][~PADDING].square().sum().backward()
        gradients.append(given.grad)
    torch.testing.assert_close(*gradients)


def test_values_are_as_many_as_keys() -> None:
    x = tokens()
    with pytest.raises(ValueError, match="`value` must have the 7 tokens of `key`, but has 3"):
        layer("rope")(x, x, x[:, :3])


@pytest.mark.parametrize("padding", [PADDING.double(), PADDING[:, :3], PADDING[:1]])
def test_a_mask_of_a_step_is_checked_by_its_name(padding: Tensor) -> None:
    with pytest.raises(ValueError, match="`key_padding_mask` must be"):
        layer("rope", causal=True).step(tokens(), None, padding)


def test_positions_that_are_given_count() -> None:
    module, x = layer("xl"), tokens()
    at = torch.arange(LENGTH).unsqueeze(0)
    near = module(x, x, x, query_positions=at, key_positions=at)[0]
    torch.testing.assert_close(near, module(x, x, x)[0])
    far = module(x, x, x, query_positions=at + 3, key_positions=at)[0]
    assert not torch.allclose(far, near)
    apart = module(x, x.clone(), x, query_positions=at + 3)[0]
    torch.testing.assert_close(apart, far)
    assert "xl" in ENCODINGS and not isinstance(module.attention.encoding, Stochastic)


@pytest.mark.parametrize("causal", [True, False])
def test_in_self_attention_positions_of_the_one_are_those_of_the_other(causal: bool) -> None:
    module, x = layer("xl", causal=causal), tokens()
    spread = 3 * torch.arange(LENGTH).unsqueeze(0)
    both = module(x, x, x, query_positions=spread, key_positions=spread)[0]
    assert not torch.allclose(both, module(x, x, x)[0])
    torch.testing.assert_close(module(x, x, x, query_positions=spread)[0], both)
    torch.testing.assert_close(module(x, x, x, key_positions=spread)[0], both)


def test_queries_beside_padded_keys_of_another_tensor_are_not_counted_in_silence() -> None:
    """The mask may be the queries' own or not; they are told, at any length."""
    module, x = layer("rope"), tokens()
    for keys, padding in ((x.clone(), PADDING), (x[:, :3], PADDING[:, :3])):
        for more in ({}, {"key_positions": make_positions(padding, keys.size(1))}):
            with pytest.raises(ValueError, match=r"`query_positions` must be given.* is None"):
                module(x, keys, keys, padding, **more)
    whole = module(x, x, x, PADDING)[0]
    told = module(x, x.clone(), x, PADDING, query_positions=make_positions(PADDING, LENGTH))[0]
    torch.testing.assert_close(told[~PADDING], whole[~PADDING])
    # Without an encoding nothing depends on them.
    plain = layer()
    torch.testing.assert_close(plain(x, x.clone(), x, PADDING)[0], plain(x, x, x, PADDING)[0])
