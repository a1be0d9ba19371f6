import re
from dataclasses import replace

import pytest

from privet.synthesis.evaluation import MEASURES, evaluate, render_fidelity_report
from privet.synthesis.evaluation.report import number


@pytest.fixture(scope="module")
def result(make_records):
    return evaluate(*(make_records(80, seed=seed) for seed in (1, 2, 3)))


@pytest.fixture(scope="module")
def html(result):
    return render_fidelity_report(result)


def test_the_page_has_every_figure_of_the_summary_and_every_plot(result, html):
    for row in result.rows:
        assert row.headline.says in html
    for name in ("pca", "w1", "hist0", "path0", "rates", "joint", "gap", "rows", "near", "roc"):
        assert f'id="{name}-' in html, name
    assert "must not be released" in html
    assert html.count("<figure") == html.count("</figure>") > 15


def test_the_page_is_self_contained_and_runs_nothing(html):
    assert "<script" not in html
    assert "Content-Security-Policy" in html
    body = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert not re.findall(r"https?://", body)
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_hostile_names_are_escaped(result):
    evil = replace(result, data="<img src=x>", cautions=("<b>",))
    html = render_fidelity_report(evil, {})
    assert "<img src=x>" not in html
    assert "Caution: &lt;b&gt;" in html


@pytest.mark.parametrize("name", MEASURES)
def test_any_measure_alone_makes_a_page(result, name):
    alone = replace(
        result,
        measures={name: result.measures[name]},
        rows=tuple(row for row in result.rows if row.measure == name),
    )
    html = render_fidelity_report(alone, {})
    assert MEASURES[name].says in html
    assert "<svg" not in html


def test_records_of_one_row_each_make_a_page(make_records):
    """No value has a next one: correlations with it are none, and drawn as such."""
    real, test, whole = (make_records(80, seed=seed) for seed in (1, 2, 3))
    single = whole.first_steps(1)
    html = render_fidelity_report(evaluate(real, test, single))
    assert 'id="lag-' in html


def test_numbers_are_short_and_nothing_is_a_dash():
    assert [number(v) for v in (None, 0.0, 0.123456, 1234.5)] == ["–", "0", "0.123", "1.23e+03"]
    assert number(2.0, "points") == "2 points"
