"""When images stop: only votes and radius are at stake here, never soundness."""

import math
import re

import numpy as np
import pytest

from privet.certification.grid_noise import GridGaussian
from privet.certification.smoothing_noise import Gaussian, Laplace, Uniform
from privet.certification.stopping import Curve, Decision, Reference, make_rule, radii_of
from privet.certification.votes import Tally
from privet.errors import InputError
from privet.privacy.confidence import Schedule, exceeds, lower_bound, lower_sequence


def tally(hits, draws):
    made = Tally.empty(len(hits), {})
    made.hits[:], made.draws[:] = hits, draws
    return made


def test_reference_judges_once_and_at_the_end():
    rule = Reference(1000, 0.001)
    assert rule.target(np.array([0, 400]), 5).tolist() == [1000, 1000]
    seen = tally([990, 400], [1000, 400])
    rule.judge(seen, np.arange(2))
    assert seen.done.tolist() == [True, False]
    assert seen.lower.tolist() == [float(lower_bound(990, 1000, 0.001)), 0.0]


class TestCurve:
    n, alpha = 16_000, 0.001

    def rule(self, **changes):
        return Curve(self.n, self.alpha, Gaussian(0.5), **changes)

    def test_it_goes_from_look_to_look(self):
        looks = Schedule(self.n, self.alpha).looks
        assert self.rule().target(looks[:-1], 3).tolist() == looks[1:].tolist()

    def test_it_is_silent_between_looks(self):
        seen = tally([1500], [1500])
        self.rule().judge(seen, np.arange(1))
        assert seen.lower[0] == 0.0
        assert not seen.done[0]

    def test_an_image_stops_at_the_radius_of_interest(self):
        seen = tally([1000, 1000], [1000, 1000])
        radius = 0.5 * 2.0
        self.rule(radius=radius).judge(seen, np.arange(1))
        self.rule().judge(seen, np.array([1]))
        assert seen.done.tolist() == [True, False]
        assert radii_of(Gaussian(0.5), seen.lower)[0] >= radius

    def test_an_image_without_a_majority_stops_at_the_first_look(self):
        seen = tally([300, 700], [1000, 1000])
        self.rule().judge(seen, np.arange(2))
        assert seen.done.tolist() == [True, False]

    def test_it_stops_where_more_votes_gain_less_than_the_tolerance(self):
        """At 8,000 of 16,000 votes and frequency 0.9: the gain still to come is known."""
        plan = Schedule(self.n, self.alpha)
        now = plan.lower(np.array([7200]), np.array([8000]))
        final = float(lower_bound(14_400, 16_000, plan.parts[-1]))
        gain = Gaussian(1.0).radius(final) - Gaussian(1.0).radius(float(now[0]))
        for tolerance, stops in ((gain * 1.01, True), (gain * 0.99, False)):
            seen = tally([7200], [8000])
            self.rule(tolerance=tolerance).judge(seen, np.arange(1))
            assert seen.done[0] == stops

    def test_the_bound_never_falls(self):
        seen = tally([1000], [1000])
        rule = self.rule()
        rule.judge(seen, np.arange(1))
        first = seen.lower[0]
        seen.hits[0], seen.draws[0] = 1200, 1414
        rule.judge(seen, np.arange(1))
        assert seen.lower[0] == first > float(lower_bound(1200, 1414, 0.001))


class TestDecision:
    rule = Decision(10_000, 0.001, Gaussian(0.5), 0.5)

    def test_it_certifies_as_soon_as_the_e_process_crosses(self):
        """Unanimous votes at one noise scale: 45 cross, 44 do not."""
        least = next(n for n in range(1, 200) if lower_sequence(n, n, 0.001) >= self.rule.p0)
        seen = tally([least, least - 1], [least, least - 1])
        self.rule.judge(seen, np.arange(2))
        assert seen.done.tolist() == [True, False]
        assert radii_of(Gaussian(0.5), seen.lower)[0] >= 0.5
        assert 40 < least < 60  # ln(1000) / -ln(0.8413) = 40 if n had been planned

    def test_it_gives_up_on_the_hopeless_and_only_on_them(self):
        p0 = self.rule.p0
        hopeless, open_ = round(400 * (p0 - 0.1)), round(400 * p0)
        seen = tally([hopeless, open_], [400, 400])
        self.rule.judge(seen, np.arange(2))
        assert seen.done.tolist() == [True, False]
        assert seen.lower[0] == pytest.approx(float(lower_sequence(hopeless, 400, 0.001)))

    def test_it_gives_up_when_all_remaining_votes_could_not_help(self):
        seen = tally([8300], [9999])
        self.rule.judge(seen, np.arange(1))
        assert seen.done[0]

    def test_it_ends_at_n(self):
        k = math.ceil(10_000 * self.rule.p0)
        seen = tally([k], [10_000])
        self.rule.judge(seen, np.arange(1))
        assert seen.done[0]
        assert seen.lower[0] < self.rule.p0

    def test_rounds_grow_and_fill_the_batch(self):
        draws = np.array([0, 100, 1000, 9990])
        assert self.rule.target(draws, 0).tolist() == [32, 132, 1200, 10_000]
        assert self.rule.target(draws, 500).tolist() == [500, 600, 1500, 10_000]

    def test_it_is_seldom_wrong_to_give_up(self):
        """Of 2,000 images well within reach, at most 2 % are given up (1 % at each look, early)."""
        rng = np.random.default_rng(0)
        seen = Tally.empty(2000, {})
        while not seen.done.all():
            which = np.flatnonzero(~seen.done)
            more = self.rule.target(seen.draws[which], 0) - seen.draws[which]
            seen.hits[which] += rng.binomial(more, 0.90)  # p0 is 0.841
            seen.draws[which] += more
            self.rule.judge(seen, which)
        assert (seen.lower < self.rule.p0).mean() <= 0.02


def test_equal_bounds_get_equal_radii():
    lower = np.array([0.9, 0.3, 0.9, 0.99])
    assert radii_of(Gaussian(0.5), lower).tolist() == [Gaussian(0.5).radius(p) for p in lower]
    assert radii_of(Gaussian(0.5), np.array([])).shape == (0,)


def test_modes():
    asked = {"n": 100, "alpha": 0.01, "radius": 1.0, "tolerance": 0.03, "reference": False}
    assert isinstance(make_rule("curve", Gaussian(1.0), **asked), Curve)
    assert isinstance(make_rule("decision", Gaussian(1.0), **asked), Decision)
    assert make_rule("curve", Gaussian(1.0), **asked | {"reference": True}) == Reference(100, 0.01)
    with pytest.raises(InputError, match="no radius"):
        make_rule("decision", Gaussian(1.0), **asked | {"radius": None})


def decided(noise, n, radius, alpha=0.001, **more):
    asked = {"tolerance": 0.02, "reference": False} | more
    return make_rule("decision", noise, n=n, alpha=alpha, radius=radius, **asked)


@pytest.mark.parametrize(
    "noise",
    [Gaussian(0.25), Laplace(0.2), Uniform(0.5), GridGaussian(0.25, 255, dimension=784)],
    ids=repr,
)
@pytest.mark.parametrize("n", [100, 1000])
def test_a_radius_that_no_votes_could_prove_is_refused_with_the_one_that_they_could(noise, n):
    """The radius it names is certified by unanimous votes, and is within 1 % of the largest."""
    most = noise.radius(float(lower_sequence(n, n, 0.001)))
    with pytest.raises(InputError) as caught:
        decided(noise, n, most * 1.001)
    stated = float(re.search(r"at most (\d+\.\d+)", str(caught.value))[1])
    assert 0.99 * most < stated <= most
    seen, rule = tally([n], [n]), decided(noise, n, stated)
    rule.judge(seen, np.arange(1))
    assert radii_of(noise, seen.lower)[0] >= stated


@pytest.mark.parametrize(("radius", "n"), [(0.7, 1000), (0.2, 30), (0.3, 5)])
def test_the_number_of_votes_it_names_is_the_least_that_is_enough(radius, n):
    with pytest.raises(InputError) as caught:
        decided(Gaussian(0.25), n, radius)
    enough = int(re.search(r"n=([0-9]+) would be enough", str(caught.value))[1])
    rule = decided(Gaussian(0.25), enough, radius)
    assert exceeds(enough, enough, rule.p0, 0.001)
    with pytest.raises(InputError):
        decided(Gaussian(0.25), enough - 1, radius)


def test_no_number_of_votes_is_named_where_none_would_do():
    """Uniform noise never proves its half width; a Gaussian with 10^9 votes not 12 scales."""
    for noise, radius in ((Uniform(0.5), 0.6), (Gaussian(0.25), 3.0)):
        with pytest.raises(InputError, match="a billion votes would not"):
            decided(noise, 1000, radius)


def test_a_curve_or_the_reference_may_look_further_than_votes_can_prove():
    """There the radius only ends the votes of an image early."""
    asked = {"n": 100, "alpha": 0.001, "radius": 9.0, "tolerance": 0.02}
    assert isinstance(make_rule("curve", Gaussian(1.0), **asked, reference=False), Curve)
    assert isinstance(make_rule("decision", Gaussian(1.0), **asked, reference=True), Reference)
