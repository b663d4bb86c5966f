"""What is printed about the encodings says what the registry and the attentions say."""

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fairseq_plugins import catalog
from fairseq_plugins.attention import ATTENTIONS, check_compatible
from fairseq_plugins.catalog import command
from fairseq_plugins.catalog.facts import DIRECTIONS, HOOK_WORDS, SIZE, Facts, gather
from fairseq_plugins.catalog.kernels import kernel_table
from fairseq_plugins.catalog.page import definition, page, prose
from fairseq_plugins.catalog.text import details, select, table
from fairseq_plugins.encodings import (
    ALL_HOOKS,
    ENCODINGS,
    EncodingContext,
    IncompatibleEncodingError,
    PositionEncoding,
    register_composition,
    register_encoding,
)

every_encoding = pytest.mark.parametrize("name", sorted(ENCODINGS))


@pytest.fixture
def both_ways() -> Iterator[str]:
    """An encoding that acts inside and outside, refuses to be causal and needs lengths."""

    @register_encoding("test_only", summary="ends", source="nowhere", formula="q + l", amount=2.0)
    class BothWays(PositionEncoding):
        """Counts *from* the end."""

        causal_refusal = "it counts from the end"
        needs_lengths = True
        extrapolates = False
        feature_map = "relu"

        def __init__(self, context: EncodingContext, *, amount: float = 1.0) -> None:
            super().__init__(context)
            self.table = torch.nn.Parameter(torch.full((context.head_dim,), amount))

        def embed(self, x, positions, *, lengths=None, tokens=None):
            return x + lengths

        def transform_query(self, q, positions):
            return q + self.table

    yield "test_only"
    ENCODINGS.pop("test_only")


@pytest.fixture
def pair() -> Iterator[str]:
    """A name that stands for two."""
    register_composition("test_pair", ("learned", "shaw"), summary="two", source="nowhere")
    yield "test_pair"
    ENCODINGS.pop("test_pair")


@functools.cache
def gathered(name: str) -> Facts:
    """The facts of an encoding of the package, not to be changed."""
    return gather(name)


@pytest.fixture(autouse=True)
def _gathered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathering builds every encoding a dozen times; those of these tests are registered anew."""

    def facts_of(name: str) -> Facts:
        return gather(name) if name.startswith("test_") else gathered(name)

    monkeypatch.setattr("fairseq_plugins.catalog.text.gather", facts_of)


def test_the_table_has_a_line_for_every_encoding() -> None:
    lines = table(select(None, None)).splitlines()
    names = [line.split()[0] for line in lines[: lines.index("")]]
    assert names == ["name", *sorted(ENCODINGS)]


@every_encoding
def test_details_give_every_option_with_its_default_under_the_name(name: str) -> None:
    text = details(name)
    assert ENCODINGS[name].formula in text
    for key, option in ENCODINGS[name].options.items():
        default = option.default
        word = str(default).lower() if isinstance(default, bool) else str(default)
        assert f"  {key}={word} " in text
        assert all(str(choice) in text for choice in option.choices)


@every_encoding
def test_what_fits_is_what_the_check_lets_pass(name: str) -> None:
    facts = gathered(name)
    for attention, direction in itertools.product(ATTENTIONS, DIRECTIONS):
        check_fit(facts, attention, direction)


def check_fit(facts: Facts, attention: str, direction: str) -> None:
    name = facts.name
    try:
        check_compatible(attention, name, causal=direction == "causal")
        fits = True
    except IncompatibleEncodingError as error:
        fits = False
        message = str(error)
    if set(facts.hooks) <= {"embed"} and direction == "cross":
        assert facts.fits[attention, direction] == "-"
        return
    assert facts.fits[attention, direction] == ("yes" if fits else "no")
    reasons = [r for r, places in facts.refusals.items() if (attention, direction) in places]
    assert len(reasons) == (not fits)
    if reasons:
        assert message.startswith(reasons[0])


def test_parameters_are_those_of_the_formulas() -> None:
    """At 6 layers, width 512, 8 heads of 64 and 512 positions."""
    assert "6 layers, width 512, 8 heads, 512 positions" in SIZE
    expected = {
        "alibi": (0, 0),
        "learned": (512 * 512, 0),
        "t5": (32 * 8, 0),
        "shaw": (2 * 129 * 64, 0),
        "lrpe_type3": (6 * (64 + 32), 64 + 32),
        "learned+lrpe_type3": (512 * 512 + 6 * (64 + 32), 64 + 32),
    }
    for name, counts in expected.items():
        facts = gathered(name)
        assert (facts.parameters, facts.parameters_per_layer) == counts, name


def test_looking_draws_nothing_from_the_global_generator() -> None:
    state = torch.get_rng_state()
    for name in ("learned", "spe", "tupe", "randomised_learned"):
        gather(name)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_command_line_knows_the_attentions_and_directions() -> None:
    assert (tuple(ATTENTIONS), tuple(DIRECTIONS)) == (command.ATTENTIONS, command.DIRECTIONS)


def test_every_hook_has_a_word() -> None:
    assert set(HOOK_WORDS) == ALL_HOOKS
    assert len(set(HOOK_WORDS.values())) == len(ALL_HOOKS)


def test_a_new_encoding_appears_with_what_it_says_about_itself(both_ways: str) -> None:
    facts = gather(both_ways)
    assert facts.hooks == ("embed", "transform_query")
    assert [facts.when(direction) for direction in DIRECTIONS] == ["no", "yes", "yes"]
    assert facts.under("vanilla") == facts.under("linear") == "yes"
    row = next(line for line in table([facts]).splitlines() if line.startswith(both_ways))
    assert row.split() == [
        *(both_ways, "yes", "yes", "no", "yes", "yes", "384"),
        *("yes", "no", "embed", "q", "nowhere"),
    ]
    text = details(both_ways)
    assert "unsupported: softmax (causal), linear (causal): a causal model cannot use" in text
    assert "64 in each layer" in text
    assert "feature map: relu" in text
    section = page().partition(f"### `{both_ways}`")[2]
    assert "`amount=2.0` (a number)" in section
    assert "Counts \\*from* the end." in section


def test_an_attention_that_alone_has_a_direction_is_named(both_ways: str) -> None:
    facts = gather(both_ways)
    facts.fits["linear", "cross"] = "no"
    assert facts.when("cross") == "softmax"
    facts.fits.update({("linear", direction): "no" for direction in DIRECTIONS})
    assert facts.under("linear") == "no"
    assert facts.when("cross") == "yes"


def test_a_name_that_stands_for_several_shows_its_parts(pair: str) -> None:
    for name in (pair, "learned+shaw"):
        text = details(name)
        assert "linear attention: no" in text
        assert "formula: x_s + p_s" in text
        assert "  shaw.max_distance=64 " in text
        assert gather(name).parameters == 512 * 512 + 2 * 129 * 64
    section = page().partition(f"### `{pair}`")[2]
    assert "**Combines** [`learned`](#learned) and [`shaw`](#shaw)" in section


def test_what_does_not_compose_is_said() -> None:
    text = details("lrpe_type8+rope")
    assert "does not compose: lrpe_type8 must be the last transform" in text
    assert "rope.layout=interleaved" in text


def test_filters(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["--attention", "linear", "--direction", "cross", "--markdown"]) == 0
    names = [line.split("`")[1] for line in capsys.readouterr().out.splitlines()[2:]]
    assert "rope" in names
    assert not {"t5", "learned", "none"} & set(names)
    assert names == [n for n in sorted(ENCODINGS) if gathered(n).fits["linear", "cross"] == "yes"]


def test_markdown_is_the_same_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["--markdown"]) == 0
    rows = capsys.readouterr().out.splitlines()
    columns = rows[0].count("|")
    assert all(row.replace("\\|", "").count("|") == columns for row in rows)
    assert [row.split("`")[1] for row in rows[2:]] == sorted(ENCODINGS)


def test_the_page_has_a_section_for_every_encoding(tmp_path: Path) -> None:
    path = tmp_path / "encodings.md"
    path.write_text("older")
    assert catalog.main(["--write", str(path)]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["encodings.md"]
    text = path.read_text(encoding="utf-8")
    assert text == page()
    headings = [line for line in text.splitlines() if line.startswith("### ")]
    assert sorted(headings) == sorted(f"### `{name}`" for name in ENCODINGS)


def test_a_page_that_cannot_be_written_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fairseq_plugins.catalog.page.page", lambda: "")
    assert catalog.main(["--write", str(tmp_path)]) == 1  # a folder
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fairseq-pe encodings: error: ") and str(tmp_path) in line


def test_docstrings_become_markdown() -> None:
    text = "a ``b_`` _c_ of\nx_t < y *z\n\nArgs:\n    context: it.\n    n: one\n        more.\n"
    assert definition(text + "\n    code\n\n- a\n- b") == [
        "a `b_` \\_c_ of x_t < y \\*z",
        "Options:",
        "- `n`: one more.",
        "```text\n    code\n```",
        "- a\n- b",
    ]
    assert prose("<b> 2 * 3 ``*``") == "\\<b> 2 * 3 `*`"


def test_an_unknown_name_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("alibbi", "rope+alibbi"):
        with pytest.raises(SystemExit) as left:
            catalog.main([name])
        assert left.value.code == 2
        assert "'alibi'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["rope", "--markdown"], ["rope", "--attention", "linear"], ["--write", "x", "--markdown"]],
)
def test_options_that_do_not_go_together_are_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        catalog.main(words)
    assert left.value.code == 2
    assert not list(tmp_path.iterdir())


def test_the_table_of_kernels_in_the_documentation_is_current() -> None:
    page_of_speed = Path(__file__).parents[1] / "docs" / "performance.md"
    if kernel_table(select(None, None)) not in page_of_speed.read_text(encoding="utf-8"):
        command = "fairseq-pe encodings --kernels"
        pytest.fail(f"docs/performance.md has another table than the code; take that of {command}")
