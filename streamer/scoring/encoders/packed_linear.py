"""Linear layers on CPU with weights packed once for oneDNN, which uses wider instructions on more CPUs than MKL.

Same float32 arithmetic in another order: vectors move by about 1e-7.
"""

import platform

import torch
from torch import Tensor, nn

_PACKING_ROWS = 64
"""A hint for the layout only; any number of rows may come."""


class PackedLinear(nn.Module):
    """``x @ weight.T + bias`` for float32 on CPU, inference only."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._bias = None if linear.bias is None else linear.bias.detach().clone()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _PACKING_ROWS)

    def forward(self, rows: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        packed: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")
        return packed


def packing_is_available() -> bool:
    """Whether this CPU and this torch have the packed product. It depends on nothing that varies between runs."""
    return (
        platform.machine() in {"x86_64", "AMD64"}
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


def pack_linear_layers(model: nn.Module) -> int:
    """Replace, in place, every plain float32 `nn.Linear` under `model`; returns how many there were."""
    replaced = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.weight.dtype == torch.float32:
                setattr(parent, name, PackedLinear(child))
                replaced += 1
    return replaced
