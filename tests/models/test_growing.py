"""A learned table of positions that starts from a shorter one, or is taken apart (Su)."""

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.encodings.hierarchical import combined, decomposed
from fairseq_plugins.encodings.tables import continued_rows, interpolated_rows
from fairseq_plugins.modules.growing import GROWTH_METHODS, SU_ALPHA, grow_table
from tests.models.helpers import LONGEST
from tests.models.roberta import build
from tests.models.test_continued import TABLE, logged, saved

LONGER = 2 * LONGEST + 3


def said(caplog: pytest.LogCaptureFixture) -> str:
    (words,) = [r.getMessage() for r in caplog.records if f"{TABLE}: " in r.getMessage()]
    return words.partition(f"{TABLE}: ")[2]


def started(path: Path, caplog: pytest.LogCaptureFixture, **options) -> Tensor:
    """The model's table; nothing else is new or unused."""
    torch.manual_seed(1)
    with caplog.at_level(logging.INFO):
        model = build(init_from=str(path), **options)
    assert logged(caplog, "new") == logged(caplog, "unused") == set()
    return model.state_dict()[TABLE]


@pytest.mark.parametrize("encoding", ["base", "learned", "learned+rope", "product"])
def test_a_longer_table_keeps_the_rows_there_are(encoding: str, tmp_path: Path, caplog) -> None:
    path, theirs = saved(tmp_path, encoding)
    torch.manual_seed(1)
    fresh = build(encoding=encoding, max_positions=LONGER).state_dict()[TABLE]
    table = started(path, caplog, encoding=encoding, max_positions=LONGER)
    assert torch.equal(table[:LONGEST], theirs[TABLE])
    assert torch.equal(table[LONGEST:], fresh[LONGEST:])
    assert said(caplog) == f"{LONGEST} rows copied, {LONGER - LONGEST} new"


def test_a_grown_model_reads_short_texts_as_before(tmp_path: Path) -> None:
    from tests.models.helpers import random_tokens

    path, theirs = saved(tmp_path, "learned")
    before = build(encoding="learned")
    before.load_state_dict(theirs)
    tokens = random_tokens(2, 20)
    after = build(encoding="learned", init_from=str(path), max_positions=LONGER)
    with torch.no_grad():
        torch.testing.assert_close(after(tokens)[0], before(tokens)[0])


def test_a_shorter_table_has_the_first_rows(tmp_path: Path, caplog) -> None:
    path, theirs = saved(tmp_path, "learned", max_positions=LONGER)
    table = started(path, caplog, encoding="learned")
    assert torch.equal(table, theirs[TABLE][:LONGEST])
    assert said(caplog) == f"the first {LONGEST} of {LONGER} rows"


def test_interpolation_stretches_the_table(tmp_path: Path, caplog) -> None:
    path, theirs = saved(tmp_path, "learned")
    options = {"max_positions": 2 * LONGEST - 1, "grow_table": "interpolate"}
    table = started(path, caplog, encoding="learned", **options)
    old = theirs[TABLE]
    torch.testing.assert_close(table[::2], old)
    torch.testing.assert_close(table[1::2], (old[:-1] + old[1:]) / 2)
    assert said(caplog) == f"{2 * LONGEST - 1} rows out of {LONGEST} by grow_table=interpolate"


def test_a_learned_table_may_grow_by_decomposition(tmp_path: Path, caplog) -> None:
    path, theirs = saved(tmp_path, "learned")
    options = {"max_positions": LONGER, "grow_table": "hierarchical"}
    table = started(path, caplog, encoding="learned", **options)
    torch.testing.assert_close(table[:LONGEST], theirs[TABLE])
    first = theirs[TABLE][0]
    u = (theirs[TABLE] - 0.4 * first) / 0.6
    torch.testing.assert_close(table[LONGEST + 5], 0.4 * u[1] + 0.6 * u[5])


@pytest.mark.parametrize("alpha", [0.4, 0.3])
def test_hierarchical_is_derived_from_a_learned_checkpoint(
    alpha: float, tmp_path: Path, caplog
) -> None:
    """Su's proposal: the trained positions stay what they are, n^2 follow from n."""
    path, theirs = saved(tmp_path, "learned")
    options = f"alpha={alpha} table_size={LONGEST}"
    with caplog.at_level(logging.INFO):
        model = build(
            encoding="hierarchical",
            init_from=str(path),
            max_positions=LONGER,
            position_encoding_options=options,
        )
    assert logged(caplog, "new") == logged(caplog, "unused") == set()
    assert f"{LONGEST} vectors derived" in said(caplog)
    encoding = model.encoder.sentence_encoder.position_embedding
    with torch.no_grad():
        rows = encoding.rows(torch.arange(LONGEST**2).unsqueeze(0))[0]
    torch.testing.assert_close(rows[:LONGEST], theirs[TABLE])
    expected = combined(decomposed(theirs[TABLE], alpha), alpha, torch.arange(LONGEST**2))
    torch.testing.assert_close(rows, expected)


def test_other_vectors_of_hierarchical_are_no_table_of_positions(tmp_path: Path, caplog) -> None:
    path, _ = saved(tmp_path, "hierarchical", position_encoding_options="table_size=20")
    with caplog.at_level(logging.INFO):
        build(encoding="hierarchical", init_from=str(path))
    assert logged(caplog, "new") == logged(caplog, "unused") == {TABLE}


def test_more_vectors_than_there_are_rows_are_refused(tmp_path: Path) -> None:
    path, _ = saved(tmp_path, "learned")
    message = f"`table_size` .* must be at most {LONGEST}, .*, but is {LONGER}"
    with pytest.raises(ValueError, match=message):
        build(encoding="hierarchical", init_from=str(path), max_positions=LONGER)


@pytest.mark.parametrize("how", sorted(GROWTH_METHODS))
def test_the_same_length_is_the_same_table(how: str) -> None:
    table = torch.randn(7, 4)
    torch.testing.assert_close(GROWTH_METHODS[how](table, torch.randn(7, 4)), table)


def test_a_decomposition_has_an_end() -> None:
    with pytest.raises(ValueError, match=r"at most 9 positions, .* 3 rows, but 10 are requested"):
        GROWTH_METHODS["hierarchical"](torch.randn(3, 4), torch.zeros(10, 4))
    assert len(GROWTH_METHODS["hierarchical"](torch.randn(3, 4), torch.zeros(9, 4))) == 9


@pytest.mark.parametrize("alpha", [SU_ALPHA, 0.1, 0.9])
def test_taking_apart_and_putting_together(alpha: float) -> None:
    table = torch.randn(5, 3, dtype=torch.float64)
    rows = combined(decomposed(table, alpha), alpha, torch.arange(25))
    torch.testing.assert_close(rows[:5], table)
    assert len(rows.unique(dim=0)) == 25


def test_interpolation_keeps_the_ends_and_lines() -> None:
    line = torch.outer(torch.arange(6.0), torch.tensor([1.0, -2.0]))
    for size in (2, 6, 11, 100):
        rows = interpolated_rows(line, size)
        assert len(rows) == size
        torch.testing.assert_close(rows[[0, -1]], line[[0, -1]])
        steps = rows.diff(dim=0)
        torch.testing.assert_close(steps, steps[:1].expand_as(steps), atol=1e-5, rtol=0)
    assert torch.equal(interpolated_rows(line[1:2], 3), line[1:2].expand(3, -1))
    assert len(interpolated_rows(line, 1)) == 1


def test_rows_are_continued_in_the_new_tables_dtype() -> None:
    table = continued_rows(torch.ones(2, 3, dtype=torch.float64), torch.zeros(5, 3))
    assert table.dtype == torch.float32
    assert table.sum(1).tolist() == [3.0, 3.0, 0.0, 0.0, 0.0]


def test_what_has_no_table_or_another_width_is_left_alone() -> None:
    from fairseq_plugins.encodings import build_encoding

    learned = build_encoding("learned", num_heads=2, head_dim=2, max_positions=3)
    assert grow_table(nn.Linear(2, 2), torch.zeros(3, 4), "copy") is None
    assert grow_table(learned, torch.zeros(3, 5), "copy") is None
    assert grow_table(learned, torch.zeros(3, 4), "copy") is not None
