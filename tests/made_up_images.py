"""Data sets of made-up images, for tests."""

from privet.data.dataset import Bounds, Dataset, Split


def image_data(name, x, y, classes, **changes):
    """These images as a data set; the first 20 are its test images, too."""
    facts = {
        "name": name,
        "train": Split(x=x, y=y),
        "test": Split(x=x[:20], y=y[:20]),
        "bounds": Bounds(low=(0.0,), high=(1.0,)),
        "classes": classes,
        "nominal_size": len(y),
        "licence": "none",
        "source": "made up",
        "test_is_public": True,
    }
    return Dataset(**(facts | changes))
