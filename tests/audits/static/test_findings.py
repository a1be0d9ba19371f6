from dataclasses import replace

import pytest

from privet.audits.static.findings import Finding, Report, Severity, settled

FINDING = Finding("a.py", 2, "noise-scale", Severity.WRONG, "What.", "Why.", "Fix.")
RULES = ("noise-scale", "reused-noise")


def settle(text, *found):
    return settled("a.py", "a.py", text, found or (FINDING,), RULES)


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\ny = 2  # privet: allow noise-scale because C is 1\n",
        "# privet: allow noise-scale because C is 1\ny = 2\n",
        "# privet: allow noise-scale because C is 1\n\fy = 2\n",
    ],
    ids=["on the line", "alone above it", "after a form feed"],
)
def test_a_reason_accepts_a_finding_and_is_kept(text):
    report = settle(text)
    assert report.findings == ()
    assert [(a.finding, a.reason) for a in report.allowed] == [(FINDING, "C is 1")]
    assert report.ok


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\ny = 2\n",
        "x = 1  # privet: allow noise-scale because C is 1\ny = 2\n",  # beside other code
        "x = 1\ny = 2  # privet: allow reused-noise because C is 1\n",
        "x = 1\ny = '# privet: allow noise-scale because C is 1'\n",
    ],
    ids=["none", "of another line", "of another rule", "in a string"],
)
def test_other_comments_accept_nothing(text):
    report = settle(text)
    assert report.findings == (FINDING,)
    assert report.allowed == ()


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        ("# privet: allow noise-scale", "gives no reason"),
        ("# privet: allow noise-scale because", "gives no reason"),
        ("# privet: allow noise because it is fine", "names no rule"),
    ],
)
def test_an_unusable_allowance_is_itself_reported(comment, says):
    report = settle(f"x = 1\ny = 2  {comment}\n")
    assert [f.rule for f in report.findings] == ["allowance", "noise-scale"]
    assert says in report.findings[0].what
    assert report.allowed == ()


def test_findings_come_in_the_order_of_lines():
    later, sooner = replace(FINDING, line=9), replace(FINDING, line=1)
    assert [f.line for f in settle("x = 1\n" * 9, later, sooner).findings] == [1, 9]


def test_doubts_alone_are_ok_and_a_wrong_one_is_not():
    doubt = replace(FINDING, severity=Severity.DOUBT)
    assert Report("t", (doubt,), ()).ok
    assert not Report("t", (doubt, FINDING), ()).ok
