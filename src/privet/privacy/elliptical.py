"""Gradients whose inputs are weighted: from a parameter's own coordinates to those of an ellipsoid.

For a weight matrix V (outputs, inputs) and public w_j > 0, one for each input: the gradient g_n of
example n becomes u_n = g_n diag(w). The geometry `by-input` clips u to the ball of radius C, adds
N(0, sigma^2 C^2 I), and goes back by diag(w)^-1: seen at V, noise of deviation sigma C / w_j on the
weights of input j.

| form of the gradients   | of u                             |
|-------------------------|----------------------------------|
| formed                  | columns times w                  |
| b a^T, sum_t b_t a_t^T  | the same b, and a times w        |

Guarantee: the forms measure and add up the very numbers that are made here (see `rules.forms`), so
what a unit adds has norm at most C in the coordinates u, whatever w is. Multiplied *after* it was
clipped it would have norm up to C max w: the order matters, and so does dividing only after the
noise is there.
"""

from dataclasses import replace

from torch import Tensor

from privet.privacy.rules.forms import Dense, OuterSum, PerExample, RankOne


def weighted_by_input(form: PerExample, weights: Tensor) -> PerExample:
    """From g to u for all examples, in the form that they are in."""
    if isinstance(form, RankOne):
        return replace(form, a=form.a * weights.to(form.a.device))
    if isinstance(form, OuterSum) and form.b.shape[1] == 1:
        return replace(form, a=form.a * weights.to(form.a.device))
    formed = form.formed()
    return Dense(formed * weights.to(formed.device))
