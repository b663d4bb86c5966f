"""``pe_roberta``: fairseq's model where nothing is new, and every encoding in both directions."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import roberta_base_architecture

from fairseq_plugins.encodings import (
    IncompatibleEncodingError,
    ModelEncodings,
    expand_name,
)
from fairseq_plugins.encodings.absolute import Learned
from fairseq_plugins.models import pe_roberta
from fairseq_plugins.models.pe_roberta import PERoberta, PERobertaConfig
from fairseq_plugins.modules.stack import build_stack_encodings
from tests.models.helpers import (
    DICTIONARY,
    LAYERS,
    LONGEST,
    PAD,
    WIDTH,
    check_noise_of_training,
    pad_rows,
    without_noise,
)
from tests.models.roberta import (
    FAIRSEQ_OPTIONS,
    PAIRS,
    REFUSED,
    TINY,
    as_ours,
    build,
    build_fairseq,
    enlarge,
    every_pair,
    random_tokens,
)


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("case", FAIRSEQ_OPTIONS)
def test_base_is_fairseq(case: str, head: bool) -> None:
    """Row Base under softmax attention is fairseq's own model: names, initial values, outputs
    and gradients, of masked words and of classes."""
    models: list[Any] = []
    for make in (build_fairseq, build):
        torch.manual_seed(5)
        models.append(make(**FAIRSEQ_OPTIONS[case]))
        models[-1].register_classification_head("classes", num_classes=3)
    reference, model = models
    expected, actual = as_ours(reference.state_dict()), model.state_dict()
    assert sorted(actual) == sorted(expected)
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name
    tokens = pad_rows(random_tokens(3, 12), [12, 5, 9], left=False)
    outputs = []
    for m in models:
        if head:
            output = m(tokens, classification_head_name="classes")[0]
        else:
            output = m(tokens, masked_tokens=tokens != PAD)[0]
        output.square().mean().backward()
        outputs.append(output)
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-5)
    gradients = as_ours({name: p.grad for name, p in reference.named_parameters()})
    for name, parameter in model.named_parameters():
        if gradients[name] is None:
            assert parameter.grad is None, name
        else:
            torch.testing.assert_close(
                parameter.grad, gradients[name], rtol=1e-4, atol=1e-6, msg=name
            )


@every_pair
def test_a_task_of_shorter_texts_fine_tunes_the_whole_model(attention: str, encoding: str) -> None:
    """fairseq's task of sentences sets max_positions to the length that it cuts them to."""
    task = SimpleNamespace(
        cfg=SimpleNamespace(), source_dictionary=DICTIONARY, max_positions=lambda: 16
    )
    trained = build(attention, encoding)
    config = PERobertaConfig(attention_type=attention, position_encoding=encoding)
    for name, value in {**TINY, "max_positions": 16, "min_positions": LONGEST}.items():
        setattr(config, name, value)
    shorter = PERoberta.build_model(config, task).eval()
    shorter.load_state_dict(trained.state_dict(), strict=True)
    tokens = random_tokens(2, 12)
    assert torch.equal(shorter(tokens)[0], trained(tokens)[0])


def test_defaults_are_fairseqs() -> None:
    """Of each option that ``roberta_base`` has."""
    args = Namespace(max_positions=512)
    roberta_base_architecture(args)
    config = PERobertaConfig()
    ours = config.__dataclass_fields__
    shared = [name for name in vars(args) if name in ours and name != "max_positions"]
    assert len(shared) > 15
    for name in shared:
        assert getattr(config, name) == getattr(args, name), name


def test_flags_mean_what_they_say() -> None:
    """What is on by default can be said and turned off; fairseq's own flags are all there."""
    ours, theirs = (ArgumentParser(argument_default=SUPPRESS) for _ in range(2))
    PERoberta.add_args(ours)
    RobertaModel.add_args(theirs)
    for option, name in {
        "encoder-learned-pos": "encoder_learned_pos",
        "layernorm-embedding": "layernorm_embedding",
        "scale-embedding": "scale_embedding",
    }.items():
        for prefix, value in (("", True), ("no-", False)):
            args = vars(ours.parse_args([f"--{prefix}{option}"]))
            if name == "scale_embedding":  # fairseq's name is its opposite
                assert args["no_scale_embedding"] is not value
            else:
                assert args[name] is value
    flags = [
        {flag for action in parser._actions for flag in action.option_strings}
        for parser in (ours, theirs)
    ]
    assert flags[1] <= flags[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("attention", "encoding"),
    [("vanilla", "base"), ("vanilla", "tupe"), ("linear", "lrpe_type2"), ("linear", "floater")],
)
def test_half_precision(attention: str, encoding: str, dtype: torch.dtype) -> None:
    model, tokens = build(attention, encoding), random_tokens(2, 40)
    with torch.no_grad():
        exact = model(tokens)[0]
    logits = model.to(dtype)(tokens)[0]
    assert logits.dtype == dtype
    logits.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    error = (logits.float() - exact).norm() / exact.norm()
    assert error < (0.05 if dtype == torch.bfloat16 else 0.01)


def test_weights_of_fairseqs_own_model() -> None:
    """A learned table of ``roberta`` loads; its first rows belong to no position."""
    reference, model = build_fairseq(), build()
    model.load_state_dict(reference.state_dict())
    tokens = random_tokens(2, 9)
    torch.testing.assert_close(model(tokens)[0], reference(tokens)[0], rtol=1e-5, atol=1e-5)


@every_pair
def test_padding_changes_nothing(attention: str, encoding: str) -> None:
    """On either side; so <s> is at position 0 and what is defined by lengths gets true ones."""
    model = enlarge(build(attention, encoding))
    for left in (False, True):
        check_padding(model, left)


def check_padding(model: PERoberta, left: bool) -> None:
    tokens = random_tokens(3, 10)
    lengths = [10, 3, 7]
    padded = pad_rows(tokens, lengths, left=left)
    with torch.no_grad():
        logits = model(padded)[0]
        assert logits.shape == (3, 10, len(DICTIONARY))
        for row, length in enumerate(lengths):
            expected = model(tokens[row : row + 1, :length])[0][0]
            actual = logits[row][padded[row] != PAD]
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@every_pair
def test_a_step_lowers_the_loss(attention: str, encoding: str) -> None:
    """Of masked words; every parameter gets a finite gradient."""
    model = build(attention, encoding).train()
    tokens = pad_rows(random_tokens(3, 12), [12, 5, 9], left=False)
    masked = (torch.rand(tokens.shape) < 0.4) & (tokens >= DICTIONARY.nspecial)
    inputs = tokens.masked_fill(masked, DICTIONARY.unk())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        logits = model(inputs, masked_tokens=masked)[0]
        losses.append(torch.nn.functional.cross_entropy(logits, tokens[masked]))
        optimizer.zero_grad()
        losses[-1].backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
        optimizer.step()
    assert losses[1] < losses[0]


@pytest.mark.parametrize(("attention", "encoding"), REFUSED)
def test_what_cannot_be_is_refused_by_name(attention: str, encoding: str) -> None:
    with pytest.raises(IncompatibleEncodingError, match="cannot use the encoding '") as error:
        build(attention, encoding)
    assert any(f"'{part}'" in str(error.value) for part in expand_name(encoding))


@pytest.mark.parametrize("encoding", [name for attention, name in PAIRS if attention == "vanilla"])
def test_encodings_keep_their_initial_values(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BERT's are for the framework's layers: not even a linear layer of an encoding gets them."""
    before: dict[torch.nn.Parameter, torch.Tensor] = {}

    def recording(*args: Any, **options: Any) -> ModelEncodings:
        result = build_stack_encodings(*args, **options)
        for part in (*result.inputs, *result.layers):
            for module in part.modules() if part is not None else ():
                if type(module) is not Learned:
                    own = module.parameters(recurse=False)
                    before.update({p: p.detach().clone() for p in own})
        return result

    monkeypatch.setattr(pe_roberta, "build_stack_encodings", recording)
    model = build("vanilla", encoding)
    parameters = set(model.parameters())
    for parameter, value in before.items():
        assert parameter in parameters
        assert torch.equal(parameter, value)


def test_a_learned_table_starts_as_in_bert() -> None:
    for encoding in ("base", "learned", "shaw"):
        model = build("vanilla", encoding, encoder_embed_dim=256)
        table = model.encoder.sentence_encoder.position_embedding.weight
        assert table.std().item() == pytest.approx(0.02, rel=0.05)


def test_what_base_stands_for() -> None:
    """RoBERTa's own table, alone and beside a relative encoding that does not replace it."""
    cases: list[tuple[str, dict[str, Any], str | None]] = [
        ("base", {}, "learned"),
        ("base", {"encoder_learned_pos": False}, "base"),
        ("base+rope", {}, "learned"),
        ("rope", {}, "learned"),
        ("rope", {"encoder_learned_pos": False}, "base"),
        ("rope", {"no_token_positional_embeddings": True}, None),
        ("alibi", {}, None),
        ("none", {}, None),
        ("sinusoidal", {}, "sinusoidal"),
        ("learned", {"encoder_learned_pos": False}, "learned"),
    ]
    for encoding, options, expected in cases:
        embedding = build("vanilla", encoding, **options).encoder.sentence_encoder
        label = getattr(embedding.position_embedding, "label", None)
        assert label == expected, (encoding, options)


@pytest.mark.parametrize("left", [False, True])
def test_tupe_unties_the_first_token(left: bool) -> None:
    """<s> is [CLS]: what it sees depends on no position, what others see does."""
    model = build("vanilla", "tupe")
    tokens = pad_rows(random_tokens(2, 8), [6, 8], left=left)
    encoding = model.encoder.sentence_encoder.layers[0].self_attn.attention.encoding
    assert encoding.untied
    seen: list[torch.Tensor] = []
    original = encoding.attn_bias

    def spy(q_positions: torch.Tensor, k_positions: torch.Tensor) -> torch.Tensor:
        seen.append(q_positions)
        return original(q_positions, k_positions)

    encoding.attn_bias = spy
    model(tokens)
    assert seen
    starts = tokens == DICTIONARY.bos()
    for positions in seen:
        assert (positions.expand_as(tokens)[starts] == 0).all()
        others = ~starts & (tokens != PAD)
        assert (positions.expand_as(tokens)[others] > 0).all()


@pytest.mark.parametrize("attention", ["vanilla", "linear"])
@pytest.mark.parametrize("offload", [False, True])
def test_checkpointed_activations(attention: str, offload: bool) -> None:
    models = []
    for checkpoint in (False, True):
        torch.manual_seed(2)
        options = {"checkpoint_activations": checkpoint, "offload_activations": offload}
        models.append(build(attention, "lrpe_type2", dropout=0.1, **options).train())
    tokens, losses = random_tokens(2, 12), []
    for model in models:
        torch.manual_seed(4)
        losses.append(model(tokens)[0].square().mean())
        losses[-1].backward()
    torch.testing.assert_close(losses[1], losses[0])
    for plain, checkpointed in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(checkpointed.grad, plain.grad)


def test_offloading_implies_checkpoints() -> None:
    model, runs = build(offload_activations=True).train(), []
    layers = model.encoder.sentence_encoder.layers
    layers[0].fc1.register_forward_hook(lambda *_: runs.append(True))
    model(random_tokens(2, 12))[0].square().mean().backward()
    assert len(runs) == 2  # the second in backward


@pytest.mark.parametrize(
    "options",
    [
        {"encoder_layerdrop": 0.5},
        {"quant_noise_pq": 0.5, "quant_noise_pq_block_size": 4},
        {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1},
        {"pooler_dropout": 0.1},
    ],
    ids=str,
)
@pytest.mark.parametrize("attention", ["vanilla", "linear"])
def test_noise_is_of_training_alone(attention: str, options: dict[str, Any]) -> None:
    tokens, models = random_tokens(2, 8), []
    for given in (options, without_noise(options)):
        models.append(build(attention, "rope", **given))
        models[-1].register_classification_head("classes", num_classes=2)

    def classes(model: Any) -> torch.Tensor:
        output: torch.Tensor = model(tokens, classification_head_name="classes")[0]
        assert output.shape == (2, 2)
        return output

    check_noise_of_training(models[0], models[1], classes)


def test_spectral_norm_of_a_classification_head() -> None:
    """Its last weights have norm 1, found by a power iteration in each step of training."""
    model = build("linear", "rope", spectral_norm_classification_head=True)
    model.register_classification_head("classes", num_classes=2)
    tokens = random_tokens(2, 8)
    with torch.no_grad():
        model.train()
        for _ in range(30):
            model(tokens, classification_head_name="classes")
    weight = model.classification_heads["classes"].out_proj.weight
    assert torch.linalg.matrix_norm(weight, ord=2).item() == pytest.approx(1, abs=1e-4)


def test_regularisation_is_fairseqs() -> None:
    """The L1 norms that a criterion adds."""
    options = {"mha_reg_scale_factor": 0.1, "ffn_reg_scale_factor": 0.2}
    models: list[Any] = []
    for make in (build_fairseq, build):
        torch.manual_seed(5)
        models.append(make(**options))
    for name in ("_get_adaptive_head_loss", "_get_adaptive_ffn_loss"):
        expected, actual = (getattr(model, name)() for model in models)
        assert actual == expected
        assert actual > 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("encoder_layers_to_keep", "0,1"),
        ("mha_heads_to_keep", 1),
        ("ffn_blocks_to_remove", 1),
        ("min_params_to_wrap", 5),
    ],
)
def test_what_is_not_offered(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"`{option}` must be .* but is {value!r}"):
        build(**{option: value})


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`tokens_per_sample` must be at most max_positions=8"):
        build(max_positions=8)
    with pytest.raises(ValueError, match=r"`encoder_embed_dim` must be a multiple of .*=5"):
        build(encoder_attention_heads=5)
    with pytest.raises(ValueError, match="`no_token_positional_embeddings` must be False"):
        build(no_token_positional_embeddings=True)
    with pytest.raises(ValueError, match="Did you mean 'rope'"):
        build(encoding="ropee")
    with pytest.raises(ValueError, match=r"`min_cosine` must be 0\.2 where no attention is linear"):
        build(min_cosine=0.0)


def test_shape_of_what_it_returns() -> None:
    model = build("linear", "lrpe_type2")
    tokens = random_tokens(2, 7)
    features, extra = model(tokens, features_only=True, return_all_hiddens=True)
    assert features.shape == (2, 7, WIDTH)
    assert [state.shape for state in extra["inner_states"]] == [(7, 2, WIDTH)] * (LAYERS + 1)
    masked = torch.zeros_like(tokens, dtype=torch.bool)
    masked[0, 3] = masked[1, 5] = True
    torch.testing.assert_close(model(tokens, masked_tokens=masked)[0], model(tokens)[0][masked])
    assert model.max_positions() == LONGEST


def test_a_product_begins_near_the_tokens() -> None:
    """Its table is no sum, so that it has none of BERT's initial values."""
    model = build("vanilla", "product", max_positions=400)
    (table,) = [p for n, p in model.named_parameters() if n.endswith("position_embedding.weight")]
    assert float(table.detach().mean()) == pytest.approx(1.0, abs=0.05)


def test_berts_vocabulary_makes_the_110_million_parameters_of_bert_base() -> None:
    """On the BERT paper's 110 M against 124.7 M here: RoBERTa's pieces are 19,743 more."""

    def count(words: int) -> int:
        dictionary = Dictionary()
        for number in range(words - len(dictionary)):
            dictionary.add_symbol(f"w{number}")
        task = SimpleNamespace(
            cfg=SimpleNamespace(tokens_per_sample=512), source_dictionary=dictionary
        )
        config = PERobertaConfig(attention_type="vanilla", position_encoding="learned")
        with torch.device("meta"):
            model = PERoberta.build_model(config, task)
        return sum(parameter.numel() for parameter in model.parameters())

    ours, with_word_pieces = count(50_265), count(30_522)
    assert ours - with_word_pieces == 19_743 * (768 + 1)  # a vector and a bias each
    assert round(ours / 1e6, 1) == 124.7
    assert round(with_word_pieces / 1e6, 1) == 109.5
