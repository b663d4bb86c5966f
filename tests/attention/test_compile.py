"""torch.compile makes one graph of an attention with its encoding, forward and backward."""

from collections.abc import Callable, Iterator

import pytest
import torch
from attention_cases import (
    CAUSAL,
    DIM,
    DIRECTED,
    HEADS,
    VOCAB,
    WIDTH,
    hooks_of,
    overflows,
    steps_of,
)
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_plugins.attention import build_attention, make_positions
from fairseq_plugins.attention.base import draw_seed
from fairseq_plugins.attention.multihead import FairseqMultiheadAttention
from fairseq_plugins.attention.positions import Positions
from fairseq_plugins.encodings import ENCODINGS, PositionEncoding, Stochastic, build_encoding
from fairseq_plugins.encodings.position_bounds import with_end
from tests.quick import first_of_each_kind

LENGTH, LONGEST = 6, 32

# What cannot be in a graph, with the reason: compiled without `fullgraph`, the rest still is.
BREAKS = {
    "recursive": "a GRU goes on from position to position as far as the positions reach",
    "floater": "the solver of a differential equation decides by values how far it steps",
    "spe_conv": "noise is drawn for the blocks of time steps in which positions occur",
}

INSIDE = [case for case in DIRECTED if hooks_of(case[0]) - {"embed"}]
EMBEDDING = [name for name, entry in ENCODINGS.items() if "embed" in entry.hooks]


def case_id(case: tuple[str, str, bool]) -> str:
    name, attention, causal = case
    return f"{name}-{attention}-{'causal' if causal else 'bidirectional'}"


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def build(name: str, causal: bool = True, **options: object) -> PositionEncoding:
    return build_encoding(
        name,
        num_heads=HEADS,
        head_dim=DIM,
        embed_dim=WIDTH,
        max_positions=LONGEST,
        causal=causal,
        vocab_size=VOCAB,
        generator=torch.Generator().manual_seed(3),
        **options,
    )


def build_pair(name: str, attention: str, causal: bool) -> nn.Module:
    encoding = build(name, causal)
    # A clamped sum near 0 multiplies rounding by up to a million.
    options = {"normalizer": "encoded"} if overflows(name, attention, torch.float16) else {}
    return build_attention(
        attention, encoding, num_heads=HEADS, head_dim=DIM, causal=causal, **options
    )


def compile_whole(name: str, module: Callable[..., object], backend: str) -> Callable[..., object]:
    """One graph or an error, except for the names that are known to break."""
    breaks = any(part in BREAKS for part in name.split("+"))
    return torch.compile(module, backend=backend, fullgraph=not breaks)


def heads(length: int = LENGTH) -> list[Tensor]:
    """Queries, keys and values, (2, H, T, D)."""
    return [torch.randn(2, HEADS, length, DIM) for _ in range(3)]


def run(
    function: Callable[..., object], inputs: list[Tensor], parameters: list[Tensor], **more: object
) -> list[Tensor | None]:
    """The output, and the gradients at inputs and parameters of a sum of random weights."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    result = function(*leaves, **more)
    output = result[0] if isinstance(result, tuple) else result
    assert isinstance(output, Tensor)
    weights = torch.linspace(-1, 2, output.numel()).view(output.shape)
    wanted = [*leaves, *parameters]
    gradients = torch.autograd.grad((output * weights).sum(), wanted, allow_unused=True)
    return [output.detach(), *gradients]


def assert_same(
    actual: list[Tensor | None], expected: list[Tensor | None], *, by_size: bool = False
) -> None:
    """To a few units of rounding; of the largest value where sums have no denominator."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert (one is None) == (other is None)
        size = max(1.0, float(other.abs().max())) if by_size and other is not None else 1.0
        torch.testing.assert_close(one, other, atol=2e-6 * size, rtol=1e-5)


def compare(case: tuple[str, str, bool], backend: str, *, padded: bool, length: int = LENGTH):
    name, attention, causal = case
    module, inputs = build_pair(name, attention, causal), heads(length)
    padding = None
    if padded:
        padding = torch.zeros(2, length, dtype=torch.bool)
        padding[1, -2:] = True
    at = make_positions(padding, length)
    more = {"q_positions": at, "k_positions": at, "key_padding_mask": padding}
    parameters = list(module.parameters())
    expected = run(module, inputs, parameters, **more)
    assert_same(run(compile_whole(name, module, backend), inputs, parameters, **more), expected)


def one_case_per_name() -> list[tuple[str, str, bool]]:
    """For each name one of the attentions and directions it can have, all of them in turn."""
    names = list(dict.fromkeys(name for name, _, _ in INSIDE))
    having = [[case for case in INSIDE if case[0] == name] for name in names]
    return [cases[i % len(cases)] for i, cases in enumerate(having)]


# Each attention and direction once; the others take minutes together.
ONE_GRAPH = first_of_each_kind(one_case_per_name(), lambda case: case[1:], case_id)


@pytest.mark.parametrize("case", ONE_GRAPH)
def test_an_attention_is_one_graph(case):
    compare(case, "aot_eager", padded=False)


@pytest.mark.slow
@pytest.mark.parametrize("case", INSIDE, ids=case_id)
def test_every_attention_and_direction_with_padding_is_one_graph(case):
    compare(case, "aot_eager", padded=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rope", "t5", "lrpe_type3", "lrpe_type7", "per", "spe", "xpos"])
def test_the_default_backend_agrees(name):
    for case in [case for case in INSIDE if case[0] == name and case[2]]:
        compare(case, "inductor", padded=False)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"decay": True}], ids=str)
@pytest.mark.parametrize("normalizer", ["encoded", "plain", "none"])
def test_several_chunks_and_any_normaliser_are_one_graph(options, normalizer):
    encoding = build("per", **options)
    module = build_attention(
        "linear", encoding, num_heads=HEADS, head_dim=DIM, causal=True, normalizer=normalizer
    )
    at = Positions.of(None, 2 * 64 + 2).index
    more, inputs = {"q_positions": at, "k_positions": at}, heads(at.size(1))
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    expected = run(module, inputs, [], **more)
    assert_same(run(compiled, inputs, [], **more), expected, by_size=normalizer == "none")


@pytest.mark.parametrize("name", sorted(BREAKS))
def test_what_is_known_to_break_does_and_only_there(name):
    """So that the list says nothing that is no longer true."""
    encoding = build(name)
    compiled = torch.compile(lambda *args: hook_of(encoding)(*args), backend="eager")
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compile_whole("", lambda *args: hook_of(encoding)(*args), "eager")(*arguments(encoding))
    torch._dynamo.reset()
    counters.clear()
    compiled(*arguments(encoding))
    assert "torch.compiler.disable" in next(iter(counters["graph_break"]))


def hook_of(encoding: PositionEncoding) -> Callable[..., Tensor]:
    return encoding.embed if "embed" in encoding.hooks else encoding.transform_query


def arguments(encoding: PositionEncoding) -> tuple[Tensor, Tensor]:
    shape = (2, LENGTH, WIDTH) if "embed" in encoding.hooks else (2, HEADS, LENGTH, DIM)
    return torch.randn(shape), make_positions(None, LENGTH)


@pytest.mark.parametrize(
    "name", first_of_each_kind(EMBEDDING, lambda name: ENCODINGS[name].hooks, str)
)
def test_an_embedding_is_one_graph(name):
    causal = ENCODINGS[name].refusal(causal=True) is None
    encoding, x = build(name, causal), torch.randn(2, LENGTH, WIDTH)
    if "randomised" in name:
        encoding.eval()  # training draws positions at every pass, outside of any graph
    at = torch.tensor([[0, 1, 2, 4, 5, LONGEST - 1], [0, 0, 0, 1, 2, 3]])
    more = {"lengths": torch.tensor([LONGEST, 4]), "tokens": torch.arange(12).view(2, 6)}

    def embed(x: Tensor) -> Tensor:
        return encoding.embed(x, at, **more)

    parameters = [p for p in encoding.parameters() if run(embed, [x], [p])[2] is not None]
    expected = run(embed, [x], parameters)
    assert_same(run(compile_whole(name, embed, "aot_eager"), [x], parameters), expected)


@pytest.mark.parametrize(
    "case",
    first_of_each_kind(
        [
            ("rope", "linear", True),
            ("rope", "vanilla", True),
            ("xl", "vanilla", True),
            ("lrpe_type7", "linear", False),
        ],
        lambda case: None,
        case_id,
    ),
)
def test_other_lengths_need_one_more_graph(case):
    module, counter = build_pair(*case), CompileCounter()
    adapter = FairseqMultiheadAttention(WIDTH, module)
    compiled = torch.compile(adapter, backend=counter, fullgraph=True)
    for length in (5, 6, 7, 9, 12, 17, 64, 80):
        x = torch.randn(length, 2, WIDTH)
        output, _ = compiled(x, x, x, need_weights=False)
        torch.testing.assert_close(output, adapter(x, x, x, need_weights=False)[0])
    # Causal linear attention has one graph more, whatever the number of lengths.
    assert counter.frame_count <= (3 if case[1:] == ("linear", True) else 2)


@pytest.mark.parametrize("name", ["xl", "learned", "hierarchical"])
def test_a_compiled_graph_refuses_positions_beyond_its_tables(name):
    encoding = build(name, table_size=6) if name == "hierarchical" else build(name)
    end = 36 if name == "hierarchical" else LONGEST
    function = embed_or_attend(encoding)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    last = torch.tensor([[0, end - 1]])
    torch.testing.assert_close(compiled(last), function(last))
    for beyond in (end, -1):
        with pytest.raises(RuntimeError, match=f"`positions` must be below {end}"):
            compiled(torch.tensor([[0, beyond]]))


def embed_or_attend(encoding: PositionEncoding) -> Callable[[Tensor], Tensor]:
    """What a hook makes of positions (1, 2)."""
    x, q = torch.randn(1, 2, WIDTH), torch.randn(1, HEADS, 2, DIM)
    if "embed" in encoding.hooks:
        return lambda at: encoding.embed(x, at)
    if "relative_logits" in encoding.hooks:
        return lambda at: encoding.relative_logits(q, q, at, at)
    return lambda at: encoding.transform_query(q, at)


@pytest.mark.parametrize("name", ["rope", "lrpe_type7", "per", "cosformer", "xl"])
def test_a_graph_takes_any_position_in_its_first_pass(name):
    """It has the formula in place of a table; columns of offsets follow from a known end."""
    encoding, at = build(name), with_end(torch.tensor([[0, 3 * LONGEST]]), 3 * LONGEST + 1)
    function = embed_or_attend(encoding)
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(at), function(at))
    if name != "xl":
        unknown = torch.tensor([[-7, 5 * LONGEST]])
        torch.testing.assert_close(compiled(unknown), function(unknown))


@pytest.mark.parametrize("attention", [pytest.param("vanilla", marks=pytest.mark.slow), "linear"])
def test_a_compiled_attention_draws_as_the_plain_one(attention, monkeypatch):
    """Another noise at every pass, which follows from the seed of torch's generator."""
    monkeypatch.setattr("fairseq_plugins.attention.base.draw_seed", draw_seed)
    module, at = build_pair("spe", attention, True), make_positions(None, LENGTH)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    q, k, v = heads()
    outputs = []
    for function in (module, compiled):
        torch.manual_seed(7)
        draws = [function(q, k, v, q_positions=at, k_positions=at)[0] for _ in range(2)]
        assert not torch.allclose(*draws)
        outputs.append(torch.stack(draws))
    torch.testing.assert_close(*outputs, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("rows", [pytest.param(8, marks=pytest.mark.slow), 3])
def test_sines_of_many_rows_are_one_graph(rows):
    encoding = build("spe")
    compiled = torch.compile(encoding.transform_query, backend="aot_eager", fullgraph=True)
    q = torch.randn(rows, HEADS, LENGTH, DIM)
    shared = torch.tensor([[0, 3, 1, 1, 7, 20]])
    for at in (shared, shared + torch.arange(rows).unsqueeze(1)):
        expected = encoding.transform_query(q, at)
        torch.testing.assert_close(compiled(q, at), expected, atol=2e-6, rtol=1e-5)


class _Questions(TorchDispatchMode):
    """Counts what makes the host wait for a value on a GPU."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        waits = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten._unique2.default)
        self.count += func in waits
        return func(*args, **(kwargs or {}))


# Noise is drawn for the positions that occur.
ASKING = {"spe_conv"}


@pytest.mark.parametrize(
    ("name", "attention"), [pair for pair in CAUSAL if (*pair, True) in INSIDE]
)
def test_a_pass_of_the_adapter_asks_for_no_value(name, attention, monkeypatch):
    """On a GPU an `int` of a tensor waits for all that is queued; in training and decoding."""
    adapter = FairseqMultiheadAttention(WIDTH, build_pair(name, attention, True))
    x, state = torch.randn(LENGTH, 2, WIDTH), {}
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[0, 0] = True
    monkeypatch.setattr(Tensor, "tolist", lambda t: [int(e) for e in t.flatten()])
    with _Questions() as questions, torch.no_grad():
        adapter(x, x, x, need_weights=False)
        adapter(x, x, x, key_padding_mask=padding, need_weights=False)
        if not any(isinstance(part, Stochastic) for part in adapter.attention.encoding.parts):
            steps = steps_of(Positions.of(None, LENGTH), [1] * LENGTH)
            for one, at in zip(x.unsqueeze(1), steps, strict=True):
                adapter(one, one, one, at, incremental_state=state, need_weights=False)
    assert (questions.count > 0) == (name in ASKING)


@pytest.mark.parametrize(
    ("name", "attention"), [case[:2] for case in INSIDE if not case[2] and case[0] not in ASKING]
)
def test_cross_attention_asks_for_no_value(name, attention):
    """Nor after a beam's reordering, which every step of a search may bring."""
    inner = build_pair(name, attention, False)
    adapter = FairseqMultiheadAttention(WIDTH, inner, encoder_decoder_attention=True)
    x, memory = torch.randn(2, 2, WIDTH), torch.randn(LENGTH, 2, WIDTH)
    keys = Positions.of(None, LENGTH)
    options = {"incremental_state": {}, "static_kv": True, "need_weights": False}
    is_drawn = any(isinstance(part, Stochastic) for part in inner.encoding.parts)
    with torch.no_grad():
        for one, at in zip(x.unsqueeze(1), steps_of(Positions.of(None, 2), [1, 1]), strict=True):
            with _Questions() as questions:
                across = at.across(keys)
                adapter(one, memory, memory, across, **options)
            # A seed is a number.
            assert questions.count == 0 or is_drawn
            adapter.reorder_incremental_state(options["incremental_state"], torch.tensor([1, 0]))
