"""What two models differ in, by their options alone."""

from argparse import Namespace
from typing import Any

import pytest
from omegaconf import OmegaConf

import fairseq_plugins.registration  # noqa: F401  (the options of models)
from fairseq_plugins.modules.identity import LM, MODELS, ROBERTA, TRANSLATION, describe, differences


def compare(model: str, theirs: dict[str, Any], ours: dict[str, Any]) -> list[tuple[str, str, str]]:
    identities = [describe({"_name": model, **options}) for options in (theirs, ours)]
    return [(d.about, d.has, d.asks) for d in differences(*identities)]


def encoding(name: str, options: str = "", **more: Any) -> dict[str, Any]:
    return {"position_encoding": name, "position_encoding_options": options, **more}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        # From before an option existed: its default.
        ({}, encoding("base")),
        ({}, {"attention_type": "vanilla", "feature_map": "relu"}),
        # Defaults written out, other orders of words, other spellings of numbers.
        (encoding("rope"), encoding("rope", "base=10000 rotated=all")),
        (encoding("rope", "base=500 rotated=half"), encoding("rope", "rotated=half base=500.0")),
        (encoding("shaw"), encoding("base+shaw")),
        (encoding("shaw", "max_distance=8"), encoding("base+shaw", "shaw.max_distance=8")),
        (encoding("base+t5"), encoding("t5+base")),
        # A name that only presets an option of another.
        (encoding("rope"), encoding("lrpe_type1", "p=identity rotated=all")),
        # What acts nowhere.
        (encoding("rope", linear_normalizer="plain"), encoding("rope")),
        (
            encoding("base", attention_type="linear", linear_normalizer="plain"),
            encoding("base", attention_type="linear"),
        ),
        (
            encoding("base", attention_type="linear", linear_normalizer="encoded", min_cosine=0.0),
            encoding("base", attention_type="linear", linear_normalizer="encoded"),
        ),
        (
            encoding("cosformer", attention_type="linear", feature_map="relu"),
            encoding("cosformer", attention_type="linear"),
        ),
        # What does not say how long it was.
        (encoding("learned"), encoding("learned", max_target_positions=64)),
        (encoding("alibi", max_target_positions=32), encoding("alibi", max_target_positions=64)),
        # What may change from one training to the next.
        ({"dropout": 0.1}, {"dropout": 0.3, "attention_dropout": 0.1}),
        ({"no_decoder_final_norm": True}, {}),
    ],
)
def test_other_spellings_are_the_same(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    assert not compare(LM, theirs, ours)
    assert not compare(LM, ours, theirs)


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (
            encoding("rope"),
            encoding("alibi"),
            ("encoding", "`rope` under vanilla attention", "`alibi`"),
        ),
        (
            encoding("rope", "base=500"),
            encoding("rope"),
            ("encoding", "`rope base=500.0` under vanilla attention", "`rope base=10000.0`"),
        ),
        (
            encoding("rope"),
            encoding("rope", no_token_positional_embeddings=True),
            ("encoding", "`base+rope` under vanilla attention", "`rope`"),
        ),
        (
            encoding("rope"),
            encoding("alibi", attention_type="vanilla", decoder_layers=6),
            ("encoding", "`rope` under vanilla attention", "`alibi`"),
        ),
        (
            encoding("rope"),
            encoding("rope", attention_type="linear"),
            ("attention", "`base+rope` under vanilla attention", "linear attention"),
        ),
        (
            encoding("rope", attention_type="linear"),
            encoding("alibi"),
            ("attention", "`rope` under linear attention", "`alibi` under vanilla attention"),
        ),
        (
            encoding("rope", attention_type="linear"),
            encoding("rope", attention_type="linear", feature_map="relu"),
            ("feature_map", "feature_map=elu", "feature_map=relu"),
        ),
        (
            encoding("rope", attention_type="linear", linear_normalizer="plain"),
            encoding("rope", attention_type="linear"),
            ("linear_normalizer", "linear_normalizer=plain", "linear_normalizer=clamped"),
        ),
        (
            encoding("rope", attention_type="linear", linear_normalizer="encoded"),
            encoding("rope", attention_type="linear", linear_normalizer="encoded", min_cosine=0.0),
            ("min_cosine", "min_cosine=0.2", "min_cosine=0.0"),
        ),
        (
            encoding("rope", attention_type="linear"),
            encoding("rope", attention_type="linear", linear_normalizer="encoded"),
            ("linear_normalizer", "linear_normalizer=clamped", "linear_normalizer=encoded"),
        ),
        (
            encoding(
                "rope", attention_type="linear", linear_normalizer="clamped", linear_epsilon=0.5
            ),
            encoding("rope", attention_type="linear", linear_normalizer="clamped"),
            ("linear_epsilon", "linear_epsilon=0.5", "linear_epsilon=1e-06"),
        ),
        (
            encoding("rope", attention_type="linear", linear_normalizer="output_norm"),
            encoding(
                "rope",
                attention_type="linear",
                linear_normalizer="output_norm",
                linear_output_norm="rms_norm",
            ),
            (
                "linear_output_norm",
                "linear_output_norm=layer_norm",
                "linear_output_norm=rms_norm",
            ),
        ),
        (
            encoding("cosformer", max_target_positions=32),
            encoding("cosformer", max_target_positions=64),
            ("encoding", "`cosformer length=32` under vanilla attention", "`cosformer length=64`"),
        ),
        (
            encoding("yarn", "factor=4", max_target_positions=32),
            encoding("yarn", "factor=4", max_target_positions=64),
            (
                "encoding",
                "`yarn trained_length=32` under vanilla attention",
                "`yarn trained_length=64`",
            ),
        ),
        (
            encoding("randomised_rope", max_target_positions=32),
            encoding("randomised_rope", max_target_positions=64),
            (
                "encoding",
                "`randomised longest=32` under vanilla attention",
                "`randomised longest=64`",
            ),
        ),
        (
            encoding("learned", max_target_positions=32),
            encoding("learned", max_target_positions=64),
            (
                "encoding",
                "`learned max_positions=32` under vanilla attention",
                "`learned max_positions=64`",
            ),
        ),
        (
            {"decoder_attention_heads": 4},
            {"decoder_attention_heads": 8},
            ("decoder_attention_heads", "decoder_attention_heads=4", "decoder_attention_heads=8"),
        ),
        (
            {"decoder_normalize_before": True, "no_decoder_final_norm": True},
            {"decoder_normalize_before": True},
            ("no_decoder_final_norm", "no_decoder_final_norm=True", "no_decoder_final_norm=False"),
        ),
    ],
)
def test_what_differs_is_named(
    theirs: dict[str, Any], ours: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    assert compare(LM, theirs, ours) == [expected]


def test_another_model() -> None:
    theirs, ours = describe({"_name": ROBERTA}), describe({"_name": LM})
    (found,) = differences(theirs, ours)
    assert (found.about, found.theirs, found.ours) == (
        "model",
        "a pe_roberta",
        "a pe_transformer_lm",
    )
    (found,) = differences(describe({"_name": "fconv_lm"}), ours)
    assert found.theirs == "a fconv_lm"


def test_fairseqs_own_roberta_is_base() -> None:
    """Its options are in a Namespace, under the name of an architecture."""
    theirs = Namespace(arch="roberta_base", encoder_layers=12, encoder_attention_heads=12)
    assert not differences(describe(theirs), describe({"_name": ROBERTA}))
    assert not differences(
        describe(theirs), describe({"_name": ROBERTA, "position_encoding": "learned"})
    )
    (found,) = differences(
        describe(theirs), describe({"_name": ROBERTA, "encoder_attention_heads": 8})
    )
    assert found.has == "encoder_attention_heads=12"


def test_robertas_longest_sequence_may_be_its_tasks() -> None:
    theirs = describe({"_name": ROBERTA}, {"tokens_per_sample": 32})
    ours = describe({"_name": ROBERTA, "max_positions": 16, "min_positions": 32})
    assert not differences(theirs, ours)
    (found,) = differences(theirs, describe({"_name": ROBERTA, "max_positions": 64}))
    assert found.theirs == "`learned max_positions=32` under vanilla attention"


@pytest.mark.parametrize("words", ["", "theta_type=b learned_theta=true"])
def test_angles_of_which_one_divides_by_the_longest_sequence(words: str) -> None:
    encoding = {"_name": ROBERTA, "position_encoding": "lrpe_type1"}
    fixed, other = (
        describe({**encoding, "position_encoding_options": options})
        for options in ("theta_type=b", words)
    )
    assert differences(fixed, other)[0].about == differences(other, fixed)[0].about == "encoding"


@pytest.mark.parametrize(
    ("theta", "learned", "differ"), [("a", "", 0), ("b", "", 1), ("c", "", 1), ("b", "true", 0)]
)
def test_angles_that_divide_by_the_longest_sequence(theta: str, learned: str, differ: int) -> None:
    words = f"theta_type={theta}" + (f" learned_theta={learned}" if learned else "")
    theirs, ours = (
        describe(
            {
                "_name": ROBERTA,
                "position_encoding": "lrpe_type1",
                "position_encoding_options": words,
                "no_token_positional_embeddings": True,
                "max_positions": longest,
            }
        )
        for longest in (32, 64)
    )
    assert len(differences(theirs, ours)) == differ


@pytest.mark.parametrize(
    ("option", "where"),
    [
        ("encoder_position_encoding", "encoder"),
        ("decoder_position_encoding", "decoder"),
        ("cross_position_encoding", "cross-attention"),
    ],
)
def test_the_place_in_a_translation_model(option: str, where: str) -> None:
    theirs = {"cross_position_encoding": "t5", "position_encoding": "t5"}
    ((about, has, asks),) = compare(TRANSLATION, theirs, {**theirs, option: "scalar"})
    assert (about, asks) == ("encoding", "`scalar`")
    assert has == f"`t5` under vanilla attention in the {where}"
    ((_, has, _),) = compare(TRANSLATION, {"encoder_attention_type": "linear"}, {})
    assert has.endswith("in the encoder")


def test_what_a_translation_model_fills_in() -> None:
    written = {"decoder_embed_dim": 512, "decoder_ffn_embed_dim": 2048, "decoder_output_dim": 512}
    assert not compare(TRANSLATION, written, {})
    ((about, _, _),) = compare(TRANSLATION, {"decoder_ffn_embed_dim": 1024}, {})
    assert about == "decoder_ffn_embed_dim"


@pytest.mark.parametrize("model", MODELS)
def test_a_composed_config_reads_as_its_plain_copy(model: str) -> None:
    config = OmegaConf.create({"model": {"_name": model, "position_encoding": "rope"}})
    OmegaConf.set_struct(config, True)
    plain = OmegaConf.to_container(config.model)
    assert not differences(describe(config.model), describe(plain))
