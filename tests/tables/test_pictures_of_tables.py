"""Pictures of tables: dots of rankings and of settings, and maps of attention."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fairseq_plugins.papers.floor_sweep import FLOOR_SWEEP
from fairseq_plugins.papers.lrpe import TABLE_2
from fairseq_plugins.report.dots import draw_ranking, draw_settings, near_ones
from fairseq_plugins.report.figures import draw_maps, draw_panels
from fairseq_plugins.report.panels import MOST_LINES, Panel
from fairseq_plugins.statistics.judged import JudgedTable


def drawn(picture):
    FigureCanvasAgg(picture).draw()
    return picture.axes


def texts(labels):
    return [label.get_text() for label in labels]


def test_settings_have_names_and_rows_the_order_of_the_page(make_result):
    rows = [row.name for row in FLOOR_SWEEP.rows]
    assert len(rows) > MOST_LINES, "as many as would be small multiples without an axis"
    made = [
        make_result(row, setting, seed, 70.0 + i + seed, table="floor_sweep")
        for i, row in enumerate(reversed(rows))
        for setting in ("floor_0", "clamped")
        for seed in (1, 2)
    ]
    picture = draw_settings(JudgedTable.of(FLOOR_SWEEP, made))
    (panel,) = drawn(picture)
    assert texts(panel.get_yticklabels()) == [row.label for row in FLOOR_SWEEP.rows]
    assert panel.get_xlabel().startswith("PPL (test), lower is better\nbars: standard deviation")
    legend = panel.get_legend()
    assert texts(legend.get_texts()) == ["floor 0", "clamped denominator"]
    assert legend.get_window_extent().x1 <= picture.bbox.x1
    first, second = (container[0] for container in panel.containers)
    assert first.get_marker() != second.get_marker()
    assert abs(first.get_ydata() - second.get_ydata()).max() < 1, "on the line of the row"


def test_a_row_far_from_all_others_is_a_number_at_the_side(make_result):
    tests = {"base": 75.0, "rope": 65.0, "per": 66.0, "spe": 76.0, "none": 900.0}
    made = [make_result(row, "linear", 1, value) for row, value in tests.items()]
    (panel,) = drawn(draw_ranking(JudgedTable.of(TABLE_2, made)))
    assert panel.get_xlim()[0] < 65 and 76 < panel.get_xlim()[1] < 80
    (text,) = panel.texts
    assert text.get_text() == "900.00 →"
    assert text.get_window_extent().x1 < panel.get_window_extent().x1
    assert text.get_position()[1] == texts(panel.get_yticklabels()).index("none")


@pytest.mark.parametrize(("high", "reach"), [(50.71, 1.0), (58.0, 8.8)])
def test_tiny_differences_of_squad_do_not_fill_the_picture(high: float, reach: float):
    lines = {"a": [(1.0, 50.0), (2.0, high)], "b": [(1.0, 50.65), (2.0, 50.6)]}
    lines["a"][0] = (1.0, 50.6) if high < 51 else lines["a"][0]
    (panel,) = drawn(draw_panels([Panel("", "", "F1", lines, span=1.0)], ""))
    low, top = panel.get_ylim()
    assert top - low == pytest.approx(reach) and low < 50.6 < high < top


def test_at_most_one_row_in_five_and_three_are_left_out_on_either_side():
    def left(*means):
        dots = [(str(mean), float(mean), None) for mean in means]
        return len(dots) - len(near_ones(dots))

    assert left(1, 2, 3, 9) == 0, "four rows are too few"
    assert left(1, 2, 3, 4, 9) == left(-9, 1, 2, 3, 4) == 1
    assert left(1, 2, 3, 4, 6) == 0
    assert left(*range(20), 50, 60, 70) == 3
    assert left(*range(20), 50, 60, 70, 80) == 0


def test_maps_of_attention_have_axes():
    maps = {"RoPE": np.eye(8), "Base": np.full((8, 8), 0.125)}
    picture = draw_maps(maps)
    panels = drawn(picture)
    assert [panel.get_title() for panel in panels[:2]] == [*maps]
    assert picture.get_supxlabel() == "position of the key"
    assert picture.get_supylabel() == "position of the query"
