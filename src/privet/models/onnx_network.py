"""A network that is an ONNX file, which is kept among the weights and travels with them."""

from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.models.onnx_graph import OnnxGraph, OnnxMap, read_onnx


@final
class OnnxNetwork(nn.Module):
    """What a file computes; one without a file waits for it to be loaded.

    Attributes:
        file: its bytes.
        graph: the file in PyTorch, where gradients are known for all of its operators.
        shape: of one input, as the file declares it; () as long as there is none.
    """

    file: Tensor
    graph: OnnxGraph | None

    def __init__(self, content: bytes = b"", *, low: float = 0.0, high: float = 1.0) -> None:
        """`low` and `high`: of the made-up inputs on which it is tried."""
        super().__init__()
        self.register_module("graph", None)
        self.register_buffer("file", torch.zeros(0, dtype=torch.uint8))
        self.by_runtime: Callable[[Tensor], Tensor] | None = None
        self.shape: tuple[int, ...] = ()
        if content:
            self.file = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            self._take(read_onnx(content, device=self.file.device, low=low, high=high))

    @property
    def differentiable(self) -> bool:
        """Whether autograd goes through it."""
        return self.graph is not None

    def forward(self, x: Tensor) -> Tensor:
        """The first output of the file."""
        if self.graph is not None:
            outputs: Tensor = self.graph(x)
            return outputs
        if self.by_runtime is None:
            raise InputError("an ONNX network without its file", fix="load its weights")
        return self.by_runtime(x)

    def _take(self, read: OnnxMap) -> None:
        known = isinstance(read.apply, OnnxGraph)
        self.graph = read.apply if isinstance(read.apply, OnnxGraph) else None
        self.by_runtime = None if known else read.apply
        self.shape = read.shape

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """The file is read again; a broken one is refused."""
        saved = state_dict.get(f"{prefix}file")
        if saved is not None:
            self._take(read_onnx(saved.cpu().numpy().tobytes(), device=self.file.device))
            self.file = saved.new_empty(saved.shape, device=self.file.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
