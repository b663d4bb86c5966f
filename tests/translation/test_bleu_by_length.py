"""BLEU by the length of the source, and the table of it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairseq_plugins.evaluation.bleu_by_length import (
    LEAST,
    bucket_of,
    main,
    read_source_lengths,
)
from fairseq_plugins.experiments.devices import Devices
from fairseq_plugins.experiments.mt import TRANSLATION_LENGTHS
from fairseq_plugins.experiments.planned import plan_run
from fairseq_plugins.papers.extrapolation import BUCKETS, bleu_metric
from fairseq_plugins.papers.extrapolation import TRANSLATION_LENGTHS as TABLE
from fairseq_plugins.records.runs import Run

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SENTENCE = "the cat sat on the mat and slept well"


def folder_of(root: Path, sources: list[str], hypotheses: list[str], references: list[str]) -> Path:
    """A data folder's raw side, and what fairseq-generate printed, in another order."""
    (root / "raw").mkdir()
    (root / "raw" / "test.en").write_text("\n".join(references) + "\n")
    (root / "data.json").write_text(json.dumps({"request": {"source": "de", "target": "en"}}))
    lines = [
        f"S-{i}\t{source}\nH-{i}\t-0.1\tx\nD-{i}\t-0.1\t{hypothesis}"
        for i, (source, hypothesis) in enumerate(zip(sources, hypotheses, strict=True))
    ]
    (root / "generate.log").write_text("\n".join(reversed(lines)) + "\n")
    return root / "generate.log"


def test_a_source_without_spaces_has_no_words_to_count(tmp_path: Path, capsys):
    output = folder_of(tmp_path, ["wort"], [SENTENCE], [SENTENCE])
    (tmp_path / "data.json").write_text(json.dumps({"request": {"source": "zh", "target": "en"}}))
    assert main([str(output), "--data", str(tmp_path)]) == 2
    assert "must have a source with spaces between words, but it is zh" in capsys.readouterr().err


def test_buckets_have_every_length_once():
    found = [bucket_of(length) for length in range(1, 60)]
    assert [found.count(name) for name in BUCKETS] == [10, 10, 10, 10, 10, 9]
    assert bucket_of(10) == "1-10" and bucket_of(11) == "11-20" and bucket_of(500) == "51+"


def test_each_bucket_is_scored_by_itself(tmp_path: Path, capsys):
    short, long = ["wo@@ rt"] * LEAST, ["wort " * 15 + "wo@@ rt"] * LEAST
    hypotheses = [SENTENCE] * LEAST + ["another thing altogether"] * LEAST + [SENTENCE]
    sources = [*short, *long, "wort " * 60]
    output = folder_of(tmp_path, sources, hypotheses, [SENTENCE] * len(sources))
    assert read_source_lengths(output, len(sources)) == [1] * LEAST + [16] * LEAST + [60]
    assert main([str(output), "--data", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    buckets = found["buckets"]
    assert buckets["1-10"] == {"bleu": pytest.approx(100), "sentences": LEAST}
    assert buckets["11-20"]["bleu"] < 5 < found["bleu"] < 95
    assert buckets["51+"] == {"bleu": None, "sentences": 1}
    assert sum(bucket["sentences"] for bucket in buckets.values()) == len(sources)
    # And as the table records it.
    run = Run(TABLE.name, "toy", "rope", "linear", 1)
    training = SimpleNamespace(data=tmp_path)
    decode, step = TRANSLATION_LENGTHS.steps(training, Path("x.pt"), run, 0)
    assert decode.command[0] == "fairseq-generate" and (run.folder / decode.log).as_posix() in (
        step.command
    )
    (tmp_path / step.log).write_text(json.dumps(found) + "\n")
    metrics = step.read(tmp_path / step.log)
    assert metrics["bleu_1_10"] == pytest.approx(100) and metrics["bleu_51_more"] is None
    told = {"train_seconds": 1.0, "updates": 2, "tokens_per_second": None, "parameters": 3}
    metrics.pop("signature")
    TRANSLATION_LENGTHS.metrics.model_validate({**metrics, **told})
    assert {bleu_metric(name) for name in BUCKETS} < {c.metric for c in TABLE.columns}


def test_a_missing_source_is_named(tmp_path: Path, capsys):
    output = folder_of(tmp_path, ["a"], [SENTENCE], [SENTENCE])
    output.write_text(output.read_text().replace("S-0", "X-0"))
    assert main([str(output), "--data", str(tmp_path)]) == 2
    assert "generate.log: no line S-0" in capsys.readouterr().err


@pytest.mark.parametrize("attention", ["linear", "vanilla", "linear_both"])
def test_a_run_decodes_with_table_4s_model(attention):
    planned = plan_run(CONFIGS, Run(TABLE.name, "toy", "rope", attention, 3), Devices(0))
    assert planned.trainings == ()
    assert planned.pretraining.run == Run("table4", "toy", "rope", attention, 3)
    assert len(planned.commands()) == len(planned.pretraining.commands()) + 2
