"""Work on a GPU that is recorded once and then replayed (a CUDA graph).

Launching a kernel costs the processor some microseconds; a private step launches a thousand. A
replay costs one launch. It repeats kernels on the same memory: inputs are copied to where they
were, results lie where they were, and no Python runs.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import torch

WARM_UP: Final = 3  # runs before recording, in which libraries choose their ways

T = TypeVar("T")


def recorded(work: Callable[[], T]) -> Callable[[], T]:
    """The same work by replay; what it returns is overwritten by the next one."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()

    def replay() -> T:
        graph.replay()
        return result

    return replay
