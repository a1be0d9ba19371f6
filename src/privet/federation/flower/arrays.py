"""A model's weights as named arrays, the way a `state_dict` has them, and an answer's as a change.

All of the state goes out: also what is frozen, and buffers of whole numbers. What comes back counts
only where it travels (`federation.flat`). Bytes of an answer are read without any code of the
sender's, and only if they are exactly what the network has: the form says nothing about records.
"""

import io
from collections.abc import Mapping
from typing import Final, Literal, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.federation.flat import load_flat, travelling
from privet.federation.server.updates import Malformed, Vector

Arrays = dict[str, NDArray[np.generic]]
Encoded = Mapping[str, bytes]
"""Arrays by name, each as a file of NumPy's (.npy)."""

MOST_HEADER: Final = 1024
FLOATS: Final = frozenset({"<f2", "<f4", "<f8"})


@final
class Layout:
    """The names, shapes and order of a network's arrays.

    Args:
        network: as it was built; it is kept, and its weights are set.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._shapes = {name: tuple(part.shape) for name, part in network.state_dict().items()}
        self._travels = list(travelling(network))

    @property
    def names(self) -> list[str]:
        """In the order of the `state_dict`."""
        return list(self._shapes)

    def arrays(self, weights: Tensor) -> Arrays:
        """The whole state, with these weights; copies."""
        load_flat(self._network, weights)
        return {name: part.numpy().copy() for name, part in self._network.state_dict().items()}

    def change(self, answer: Encoded, base: Tensor) -> Vector:
        """How far an answer moved away from the version that it began with."""
        named = self._named(answer)
        parts = [_read(named[name], self._shapes[name], name) for name in self._travels]
        with np.errstate(over="ignore", invalid="ignore"):
            vector = np.concatenate([part.reshape(-1).astype(np.float32) for part in parts])
            return np.asarray(vector - base.detach().cpu().numpy(), dtype=np.float32)

    def _named(self, answer: Encoded) -> Encoded:
        """By the network's names; or numbered, as lists of arrays are."""
        if set(answer) == set(self._shapes):
            return answer
        if list(answer) == [str(place) for place in range(len(self._shapes))]:
            return dict(zip(self._shapes, answer.values(), strict=True))
        missing = sorted(set(self._shapes) - set(answer))
        raise Malformed(
            "an answer with other arrays than the network's",
            got=f"{len(answer)} arrays" + (f", no '{missing[0]}'" if missing else ""),
            expected=f"the {len(self._shapes)} of the state_dict, by name or in its order",
        )


def _read(content: bytes, shape: tuple[int, ...], name: str) -> NDArray[np.floating]:
    """One array; its header is believed only where it says what is expected."""
    try:
        header, dtype, start, order = _header(content[:MOST_HEADER])
    except Exception as error:  # NumPy raises many kinds for a broken header
        raise Malformed(f"'{name}' is no array of NumPy's", got=type(error).__name__) from None
    length = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if header != shape or dtype.str not in FLOATS or len(content) != start + length:
        raise Malformed(
            f"'{name}' is another array",
            got=f"{dtype} of shape {header}, {len(content) - start} bytes",
            expected=f"floating-point numbers of shape {shape}",
        )
    return np.frombuffer(content, dtype=dtype, offset=start).reshape(shape, order=order)


def _header(
    begin: bytes,
) -> tuple[tuple[int, ...], np.dtype[np.generic], int, Literal["C", "F"]]:
    """Shape, kind of numbers, where they begin, and in which order they are."""
    file = io.BytesIO(begin)
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, fortran, dtype = read(file)
    return shape, dtype, file.tell(), "F" if fortran else "C"
