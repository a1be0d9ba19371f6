"""One call for many attacks and sizes."""

import pytest
import torch

import privet
from privet.attacks import create, cw
from privet.attacks.geometry import norms
from privet.errors import InputError

NAMES = ["fgsm", "pgd", "deepfool"]


@pytest.fixture(scope="module")
def swept(digits):
    x, y = digits.x[:80], digits.y[:80]
    return privet.attack(
        NAMES, digits.classifier, x, y, sizes=[0.2, 0.05, 0.1], keep=True, batch=32, steps=10
    )


def test_sizes_are_sorted_and_accuracies_never_rise(swept):
    assert swept.sizes == (0.05, 0.1, 0.2)
    assert swept.attacks == ("fgsm", "pgd", "deepfool")
    for _, accuracies in swept.rows():
        values = [swept.clean_accuracy, *accuracies.values()]
        assert values == sorted(values, reverse=True)
        assert values[0] - values[-1] > 0.3


def test_the_worst_case_is_taken_image_by_image(swept):
    held = torch.stack([swept.holds[name] for name in NAMES])
    assert torch.equal(swept.worst, held.all(0))
    lowest = [min(swept.accuracy(name)[size] for name in NAMES) for size in swept.sizes]
    robust = list(swept.robust_accuracy.values())
    assert all(r <= low for r, low in zip(robust, lowest, strict=True))
    assert list(swept.rows()[-1][1].values()) == robust


def test_adversarials_prove_every_fall(swept, digits):
    """What does not hold is shown by an input in the ball and the box; batches do not mix."""
    x, y = digits.x[:80], digits.y[:80]
    for name in NAMES:
        for i, size in enumerate(swept.sizes):
            found = swept.adversarials[name][i]
            assert (norms(found - x, "linf") <= size + 1e-6).all()
            assert ((found >= 0) & (found <= 1)).all()
            holds = digits.classifier.labels(found) == y
            assert torch.equal(holds, swept.holds[name][i])
    assert torch.equal(digits.classifier.labels(x) == y, swept.right)


def test_smallest_perturbations_are_looked_for_once(digits, monkeypatch):
    runs = []
    approach = cw.CW._approach
    monkeypatch.setattr(cw.CW, "_approach", lambda *a: runs.append(1) or approach(*a))
    quick = create("cw", searches=2, iterations=20)
    result = privet.attack(
        quick, digits.classifier, digits.x[:20], digits.y[:20], norm="l2", sizes=[0.2, 1.0, 3.0]
    )
    assert len(runs) == 1
    distance = norms(
        quick.closest(digits.classifier, digits.x[:20], digits.y[:20]) - digits.x[:20], "l2"
    )
    for i, size in enumerate(result.sizes):
        assert torch.equal(
            result.holds["cw"][i], result.right & ~((distance > 0) & (distance <= size))
        )


def test_what_has_fallen_is_not_attacked_again(digits):
    rows = []
    counted = digits.through(lambda s: rows.append(len(s)) or s)
    x, y = digits.x[:60], digits.y[:60]
    privet.attack("fgsm", counted, x, y, sizes=[0.1, 0.2], check=False)
    held = int(
        (digits.classifier.labels(create("fgsm")(digits.classifier, x, y, size=0.1)) == y).sum()
    )
    assert held < 50
    assert rows.count(held) == 2  # gradient and step at the second size


def test_targets_count_only_when_reached(digits):
    x, y = digits.x[:40], digits.y[:40].clone()
    y[0] = (y[0] + 5) % 10  # wrong from the start, and no target's fault
    result = privet.attack(
        "pgd", digits.classifier, x, y, sizes=[0.1, 0.5], target=(y + 1) % 10, keep=True
    )
    taken = digits.classifier.labels(result.adversarials["pgd"][1]) == (y + 1) % 10
    assert torch.equal(result.holds["pgd"][1], result.right & ~taken)
    assert not result.holds["pgd"][:, 0].any()
    assert result.accuracy("pgd")[0.5] < 0.1 < result.accuracy("pgd")[0.1]


def test_lucky_draws_do_not_count_as_adversarial_inputs(make_classifier):
    """Mean lead 1, noise 2: single draws are wrong in 31 %, and no input is any worse. With a
    mean of 32 draws, an image is wrong by chance in 0.2 %."""
    generator = torch.Generator().manual_seed(0)

    def scores(x):
        lead = 1 + 2 * torch.randn(len(x), generator=generator) + 0 * x.sum(1)
        return torch.stack([lead, torch.zeros_like(lead)], 1)

    luck = make_classifier(scores, (3,), 2, random=True)
    x, y = torch.rand(100, 3), torch.zeros(100).long()
    result = privet.attack(["pgd", "square"], luck, x, y, sizes=0.1, steps=10, check=False)
    assert result.robust_accuracy[0.1] > 0.9
    assert any("saw one draw at a time" in warning for warning in result.warnings)


def test_what_fell_at_a_small_size_does_not_stand_up_again_at_a_larger_one(make_classifier):
    """A random classifier that errs at the first size only: by chance, as it were."""
    heard = []  # once the first size is attacked, once it is judged, then of the second

    def scores(x):
        moved = (x - 0.5).abs().sum(1)
        lead = 0.001 - moved if len(heard) < 2 else 0.001 + 0 * moved
        return torch.stack([lead, torch.zeros(len(x))], 1)

    lucky = make_classifier(scores, (3,), 2, random=True)
    x, y = torch.full((10, 3), 0.5), torch.zeros(10).long()
    result = privet.attack(
        "pgd", lucky, x, y, sizes=[0.1, 0.2], steps=3, check=False,
        watch=lambda name, done, of: heard.append(done),
    )  # fmt: skip
    assert result.right.all()
    assert result.accuracy("pgd") == {0.1: 0.0, 0.2: 0.0}


def test_an_image_that_is_wrong_from_the_start_never_holds(digits):
    """Even if an attack turns it right, or a target is not reached."""
    x, y = digits.x[:12], (digits.classifier.labels(digits.x[:12]) + 3) % 10
    for target in (None, (y + 1) % 10):
        result = privet.attack(
            ["pgd", "deepfool"], digits.classifier, x, y, sizes=[0.05, 0.1], target=target, steps=3
        )
        assert not result.worst.any()
        assert not any(held.any() for held in result.holds.values())


def test_arrays_and_configured_attacks_are_taken(digits):
    x, y = digits.x[:20].numpy(), digits.y[:20].numpy().astype("int32")
    result = privet.attack(create("pgd", steps=3), digits.classifier, x, y, sizes=0.1)
    assert result.settings["pgd"]["steps"] == 3
    assert result.examples == 20


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"names": "pdg"}, "did you mean 'pgd'"),
        ({"names": []}, "bad list of attacks"),
        ({"names": ["pgd", "pgd"]}, "expected each one once"),
        ({"names": create("pgd", norm="l2")}, "pgd is configured for another norm: got l2"),
        ({"names": "cw", "norm": "l1"}, "cw does not work in this norm"),
        ({"sizes": []}, "bad sizes of attacks"),
        ({"sizes": [0.1, -0.1]}, "bad sizes of attacks"),
        ({"sizes": float("inf")}, "bad sizes of attacks"),
        ({"x": torch.rand(0, 1, 8, 8), "y": torch.zeros(0).long()}, "nothing to attack"),
        ({"y": torch.zeros(4) + 0.5}, "labels that are no class numbers"),
    ],
)
def test_bad_calls_are_refused(changes, said, digits):
    given = {"names": "pgd", "x": digits.x[:4], "y": digits.y[:4], "sizes": 0.1} | changes
    with pytest.raises(InputError, match=said):
        privet.attack(
            given.pop("names"), digits.classifier, given.pop("x"), given.pop("y"), **given
        )


def test_the_watch_sees_every_attack_to_its_end(digits):
    seen = {}
    privet.attack(
        ["fgsm", "deepfool"], digits.classifier, digits.x[:10], digits.y[:10],
        sizes=[0.1, 0.2], batch=4, check=False,
        watch=lambda name, done, of: seen.setdefault(name, []).append((done, of)),
    )  # fmt: skip
    for steps in seen.values():
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)
        assert steps[-1] == (20, 20)
