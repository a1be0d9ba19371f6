"""What is claimed for L2DP-ML as published, and what is wrong with it, in plain sentences."""

from typing import Final

from privet.guarantee import REFUTED, Adjacency, Basis, Privacy
from privet.lifelong.published.settings import PUBLISHED, PublishedSettings
from privet.lifelong.stream import Stream
from privet.training.published.batches import Dealt
from privet.training.published.pure_claim import KNOWN_NOISE

AUDIT: Final = (
    f"{REFUTED}`privet audit mechanism l2dp-rank` tells neighbours apart in every run, by one"
    " gradient; so do l2dp-inputs and l2dp-labels"
)
ACCOUNTANT: Final = (
    "as published: epsilon1 (1 + 1/gamma_x + 1/gamma) + epsilon2, for any number of tasks"
)
GAPS: Final = (
    "Lifelong DP also demands that no earlier release is more private, which no proof of an upper"
    " bound can show, and which a constant output violates",
    "its neighbours may differ in one record of every task, but the proof changes one record of one"
    " task: under the definition, m tasks cost m times as much",
    "the proof needs every record in one task only; permuted images are in all of them, overlapping"
    " windows of a signal in several",
    "all records of all tasks get the same draw of noise: the difference of two noised records is"
    " that of the records themselves, so no epsilon is finite",
    "the sensitivity of a record is taken to be 1, a ratio; for inputs in [-1, 1]^d it is 2d, so"
    " noise of this scale, even fresh for each record, would have hundreds of times the epsilon",
    "the coefficients of both objectives change with the weights, so every step asks anew, and the"
    " same noise answers: the difference of two answers is exact",
    "a gradient of the first layer has d times beta numbers and noise of rank 2: what is left once"
    " that is taken off tells one data set from another, whatever the scale of the noise",
    "that steps and tasks cost nothing is argued as post-processing of noised inputs, which hide"
    " nothing; a record in the memory is read at every later step",
    "memory and batches hold true labels; only a linear term of one layer is noised, by one vector"
    " that all classes share, so that differences between classes are bare",
    "normalisation, epochs of tasks and the choice of settings are read off private records at no"
    " charge; the released network contains two of the three draws of noise, and statistics of its"
    " batch normalisation with no noise of their own",
    "more epochs for small tasks are not free: with noise that is drawn for each step, the small"
    " tasks are those that lose most",
    "ratios are bounded by epsilon where e^epsilon is meant, probabilities of classes are added"
    " where they multiply, and one draw counts as d independent ones",
)


def claims(settings: PublishedSettings, stream: Stream) -> tuple[Privacy, ...]:
    """The claimed epsilon with its gaps, as a card states it; nothing for variants without one."""
    if settings.variant != PUBLISHED or settings.epsilon is None:
        return ()
    grouped = stream.tasks[0].data.train.units is not None
    several = f"the claim is about one record, and a {stream.unit} has several"
    return (
        Privacy(
            epsilon=settings.epsilon,
            delta=0.0,
            unit="example" if grouped else stream.unit,
            adjacency=Adjacency.REPLACE_ONE,
            basis=Basis.CLAIMED,
            accountant=ACCOUNTANT,
            sampler=Dealt.name,
            gaps=(
                AUDIT,
                *GAPS,
                *((several,) if grouped else ()),
                *(() if settings.noise_seed is None else (KNOWN_NOISE,)),
            ),
        ),
    )
