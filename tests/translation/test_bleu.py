"""BLEU on detokenised text: what is scored, what is refused, what the signature says."""

from pathlib import Path

import pytest
import sacrebleu

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.evaluation.bleu import (
    read_generated,
    read_references,
    score,
    score_output,
    token_bleu,
)

TEXT = ['He said: "No, it\'s 5% of A-B."', "The cat sat on the mat & slept.", "A third one."]


def test_score_and_signature():
    bleu, signature = score(TEXT, TEXT, "en")
    assert bleu == pytest.approx(100)
    words = dict(part.split(":") for part in signature.split("|"))
    assert (words["tok"], words["case"], words["nrefs"]) == ("13a", "mixed", "1")
    assert words["version"] == sacrebleu.__version__
    worse = ["He said no.", "The cat sat on the mat.", "a Third one."]
    found, _ = score(worse, TEXT, "en")
    assert found == pytest.approx(sacrebleu.corpus_bleu(worse, [TEXT]).score)
    assert 0 < found < 50
    assert score([line.lower() for line in TEXT], TEXT, "en")[0] < 100  # case counts


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["a"], ["a", "b"], "1 hypotheses and 2 references"),
        ([], [], "no reference"),
        (["A-B"], ["A @-@ B"], "reference 1 is not raw text but tokenised: 'A @-@ B'"),
        (["a", "able"], ["a", "a@@ ble"], "reference 2 is not raw text"),
    ],
)
def test_what_cannot_be_scored(hypotheses, references, message):
    with pytest.raises(ValueError, match=message):
        score(hypotheses, references, "en")


def test_generated_lines_come_back_in_order_and_detokenised(tmp_path):
    output = tmp_path / "generate.txt"
    output.write_text(
        "S-1\tx\nT-1\tThe c@@ at\nH-1\t-0.1\tTh@@ e\n"
        "D-1\t-0.1\tThe c@@ at said : &quot; no &quot; .\nD-1\t-0.9\tworse\nP-1\t-0.1\n"
        "2026-01-01 | INFO | D-2 is no line of its own\n"
        "D-0\t-0.2\tA @-@ B &amp; C\nD-2\t-0.2\t\n",
        encoding="utf-8",
    )
    assert read_generated(output, "en", 3) == ["A-B & C", 'The cat said: "no".', ""]
    assert len(read_generated(output, "en")) == 3
    with pytest.raises(ValueError, match=r"generate\.txt: no line D-3; 3 of 4"):
        read_generated(output, "en", 4)
    with pytest.raises(ValueError, match=r"generate\.txt: 3 lines D- for 2 sentences"):
        read_generated(output, "en", 2)


def test_bleu_of_tokens_is_of_what_the_model_printed(tmp_path):
    """Tokens as they are: no mark is split off, and pieces are joined."""
    output = tmp_path / "generate.txt"
    tokens = [f"word{i} , and a c@@ at sat on it ." for i in range(4)]
    lines = [f"T-{i}\t{line}\nD-{i}\t-0.1\t{line}" for i, line in enumerate(tokens)]
    output.write_text("\n".join(lines))
    assert token_bleu(output) == pytest.approx(100)
    output.write_text("\n".join(lines).replace("D-1\t-0.1\tword1 ,", "D-1\t-0.1\tword1,"))
    worse = [*tokens[:1], "word1, and a cat sat on it .", *tokens[2:]]
    plain = [[line.replace("@@ ", "") for line in each] for each in (worse, tokens)]
    expected = sacrebleu.corpus_bleu(plain[0], [plain[1]], tokenize="none", force=True).score
    assert token_bleu(output) == pytest.approx(expected)
    assert expected < 99
    output.write_text("\n".join(lines[:3]) + "\nT-3\tx")
    with pytest.raises(ValueError, match="no line D-3; 3 of 4"):
        token_bleu(output)


def test_references_are_the_raw_lines_and_nothing_else(tmp_path: Path):
    with pytest.raises(ValueError, match=r"test\.de does not exist: .*raw text"):
        read_references(tmp_path, "test", "de")
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "test.de").write_bytes("„Ja“\u2028da.\r\nA-B\n".encode())
    assert read_references(tmp_path, "test", "de") == ["„Ja“\u2028da.", "A-B"]


def test_a_line_about_such_marks_is_scored():
    lines = ["git diff: @@ -1,3 +1,4 @@", *["a plain line"] * 30]
    assert score(lines, lines, "en")[0] == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("language", "reference", "hypothesis"),
    [
        ("zh", "他昨天在图书馆里读了一本很有意思的书。", "他昨天在图书馆里看了一本很有意思的书。"),
        ("ja", "彼は昨日図書館で面白い本を読みました。", "彼は昨日図書館で面白い本を見ました。"),
    ],
)
def test_languages_without_spaces_are_scored_by_characters(language, reference, hypothesis):
    near, signature = score([hypothesis] * 9, [reference] * 9, language)
    assert 50 < near < 100 and "tok:13a" not in signature
    assert score([hypothesis] * 9, [reference] * 9, "en")[0] < 1


def test_cantonese_has_no_spaces_between_words_either():
    other = ["我今日去咗學校好唔開心。"] * 5
    assert score(["我今日去咗學校好開心。"] * 5, other, "yue")[0] > 70


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"data\.json is damaged"),
        ('{"request": {}}', "--data must be a folder of translation"),
    ],
)
def test_a_folder_of_no_translation_is_refused(tmp_path, content, message):
    (tmp_path / "data.json").write_text(content)
    with pytest.raises(DataError, match=message):
        score_output(tmp_path / "generate.txt", tmp_path, "test")
