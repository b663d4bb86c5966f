"""The picture of all claims with their intervals."""

from itertools import pairwise
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg

from fairseq_plugins.papers import CLAIMS
from fairseq_plugins.report import claims_figure
from fairseq_plugins.statistics.inference import Estimate
from fairseq_plugins.statistics.verdicts import Verdict, Word


def test_the_longest_claims_do_not_cover_each_other(monkeypatch) -> None:
    drawn = []
    monkeypatch.setattr(claims_figure, "save_picture", lambda picture, stem: drawn.append(picture))
    measured = [claim for claim in CLAIMS if hasattr(claim.evidence, "metric")]
    claims = sorted(measured, key=lambda claim: -len(claim.text))[:12]
    verdict = Verdict(Word.CONFIRMED, Estimate(1.0, 0.5, 1.5))
    claims_figure.draw_claims(claims, {claim.name: verdict for claim in claims}, Path("any"))
    (picture,) = drawn
    FigureCanvasAgg(picture).draw()
    labels = picture.axes[1].get_yticklabels()
    assert max(label.get_text().count("\n") for label in labels) == 2, "three lines"
    boxes = [label.get_window_extent() for label in labels]
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))
