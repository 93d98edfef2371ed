"""Note which function of PyTorch runs while autograd saves tensors, and what that function's backward pass reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

CONVOLUTIONS = frozenset(f"conv{t}{d}d" for t in ("", "_transpose") for d in (1, 2, 3))
PRODUCTS = CONVOLUTIONS | {"linear", "bilinear"}
RELU = frozenset(("relu", "relu_", "threshold", "leaky_relu", "leaky_relu_"))  # whose backward pass reads the sign
CLIPPED = frozenset(("relu6", "hardtanh", "hardtanh_"))
DROPOUT = frozenset(("dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout"))
ATTENTION = frozenset(("scaled_dot_product_attention", "multi_head_attention_forward"))
MAX_POOL = "max_pool2d"
LOG_SOFTMAX = "log_softmax"
SPECIAL = RELU | CLIPPED | DROPOUT | ATTENTION | {MAX_POOL}
# Errors in what these save reach the gradients of all layers, and are as few as the outputs of the last one
LOSSES = frozenset(
    name for name in vars(torch.nn.functional) if name.endswith("_loss") or "cross_entropy" in name or name == "kl_div"
)


class Call(NamedTuple):
    """A call of a function of PyTorch: its name and arguments."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """Return an argument by its place or its name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)


class Calls(TorchFunctionMode):
    """A mode that holds the call in progress, the outermost where functions call others.

    watchers: functions that the call's saved tensors have added; they are called with the gradient of its result.
    """

    def __init__(self) -> None:
        super().__init__()
        self.current: Call | None = None
        self.watchers: list[Callable[[torch.Tensor], None]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, and note it meanwhile."""
        before = self.current, self.watchers
        self.current, self.watchers = Call(getattr(func, "__name__", ""), args, kwargs or {}), []
        try:
            result = func(*args, **(kwargs or {}))
            if self.watchers:
                _watch(result, self.watchers)
            return result
        finally:
            self.current, self.watchers = before


def _watch(result: Any, watchers: list[Callable[[torch.Tensor], None]]) -> None:
    """Call watchers with the gradient of a result, or of the first tensor of several that has one."""
    for tensor in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:

            def see(gradient: torch.Tensor) -> None:
                for watcher in watchers:
                    watcher(gradient)

            tensor.register_hook(see)
            return


class Window(NamedTuple):
    """A window of max pooling, each (height, width), and the width of the input."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    width: int

    def local(self, indices: torch.Tensor) -> torch.Tensor:
        """Turn indices into a plane of the input to places within each window, uint8."""
        y, x = self._corners(indices)
        row = torch.div(indices, self.width, rounding_mode="floor")
        inside = torch.div(row - y, self.dilation[0], rounding_mode="floor") * self.size[1]
        return (inside + torch.div(indices - row * self.width - x, self.dilation[1], rounding_mode="floor")).byte()

    def indices(self, local: torch.Tensor) -> torch.Tensor:
        """Turn places within each window back to int64 indices into a plane of the input."""
        y, x = self._corners(local)
        place = local.long()
        row = torch.div(place, self.size[1], rounding_mode="floor")
        return (y + row * self.dilation[0]) * self.width + x + (place - row * self.size[1]) * self.dilation[1]

    def _corners(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, columns = (torch.arange(n, device=indices.device) for n in indices.shape[-2:])
        return (rows * self.stride[0] - self.padding[0])[:, None], columns * self.stride[1] - self.padding[1]


def window_of(call: Call) -> Window:
    """Return the window of a call of max_pool2d."""
    size = _pair(call.argument(1, "kernel_size"))
    stride = call.argument(2, "stride")
    return Window(
        size,
        size if stride is None or stride == [] else _pair(stride),
        _pair(call.argument(3, "padding", 0)),
        _pair(call.argument(4, "dilation", 1)),
        call.argument(0, "input").shape[-1],
    )


def _pair(value: Any) -> tuple[int, int]:
    both = (value, value) if isinstance(value, int) else tuple(value) * (2 if len(value) == 1 else 1)
    return int(both[0]), int(both[1])


def kind_of(call: Call | None, tensor: torch.Tensor) -> str:
    """Name what a function saves, where its backward pass can do with another form than most; else return ""."""
    name = "" if call is None else call.name
    if call is not None and (name == LOG_SOFTMAX or name in LOSSES):
        return LOG_SOFTMAX if _is_log_probability(call, tensor) else "loss"
    return name if name in SPECIAL else ""


def _is_log_probability(call: Call, tensor: torch.Tensor) -> bool:
    """True for the result of log_softmax, which `cross_entropy` calls and `nll_loss` takes."""
    operands = [a for a in (*call.args, *call.kwargs.values()) if isinstance(a, torch.Tensor)]
    if call.name == "nll_loss":
        operands = operands[:1]
    shared = any(a.untyped_storage()._cdata == tensor.untyped_storage()._cdata for a in operands)
    return bool(shared == (call.name == "nll_loss") and call.name in (LOG_SOFTMAX, "cross_entropy", "nll_loss"))


def is_weight(call: Call, tensor: torch.Tensor) -> bool:
    """True for a tensor of a product's size of weights and not of its input's: a copy of them, as autocast makes."""
    x, weight = call.argument(0, "input"), call.argument(1, "weight")
    return isinstance(weight, torch.Tensor) and tensor.numel() == weight.numel() != x.numel()


def bounds_of(call: Call) -> tuple[float, float]:
    """Return the lower and upper bound of a clip."""
    if call.name == "relu6":
        return 0.0, 6.0
    return float(call.argument(1, "min_val", -1.0)), float(call.argument(2, "max_val", 1.0))
