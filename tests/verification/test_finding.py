from privet.verification import Finding, Verification


def test_contradictions_are_all_named_once_each():
    found = Finding.of("x", ["a", "b", "a"], otherwise="sound")
    assert (found.ok, found.detail) == (False, "a; b")
    assert Finding.of("x", [], otherwise="sound") == Finding(check="x", ok=True, detail="sound")


def test_one_contradiction_is_enough():
    good, bad = (Finding.of("x", said, otherwise="") for said in ([], ["a"]))
    assert Verification(findings=(good, good), unproven=()).ok
    assert not Verification(findings=(good, bad, good), unproven=()).ok
