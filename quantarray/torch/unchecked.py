"""See that saved tensors are finite: at once on a CPU; on a GPU at the end of a step, before which nothing waits."""

from __future__ import annotations

import torch

from . import gpu

_ROOM = 1 << 10  # flags that are made at a time


class Unchecked:
    """A list of flags that a GPU sets where a tensor is not finite, with the layers and shapes that they are of."""

    def __init__(self) -> None:
        self._flags: list[torch.Tensor] = []
        self._messages: list[str] = []
        self._room: dict[torch.device, torch.Tensor] = {}

    def flag(self, tensor: torch.Tensor, layer: str) -> torch.Tensor | None:
        """Return uint8[1] on a tensor's GPU, to be set where the tensor is wrong; None for one on a CPU."""
        if not gpu.on_gpu(tensor):
            return None
        room = self._room.get(tensor.device)
        if room is None or not len(room):
            room = torch.zeros(_ROOM, dtype=torch.uint8, device=tensor.device)
        self._room[tensor.device] = room[1:]
        self._flags.append(room[:1])
        self._messages.append(why(layer, tensor))
        return room[:1]

    def check(self, tensor: torch.Tensor, layer: str) -> None:
        """Raise ValueError for NaN and infinity in a tensor on a CPU; set a flag for one on a GPU."""
        if not gpu.on_gpu(tensor):
            if not torch.isfinite(tensor).all():
                raise ValueError("NaN or infinity")
            return
        flag = self.flag(tensor, layer)
        assert flag is not None
        low, high = torch.aminmax(tensor)  # which are NaN where there is one
        flag.copy_(~(torch.isfinite(low) & torch.isfinite(high)))

    def clear(self) -> None:
        """Forget all flags."""
        self._flags, self._messages, self._room = [], [], {}

    def finish(self) -> None:
        """Wait for all flags and raise ValueError for the first that is set."""
        flags, messages = self._flags, self._messages
        self.clear()
        together = torch.cat(flags).tolist() if len({flag.device for flag in flags}) == 1 else [int(f) for f in flags]
        for flag, message in zip(together, messages, strict=True):
            if flag:
                raise ValueError(message)


def why(layer: str, tensor: torch.Tensor) -> str:
    """Return the message for a tensor that no grid of levels holds."""
    return (
        f"compressed_activations: {layer} saves a tensor of shape {tuple(tensor.shape)} with NaN, infinity, or a range "
        f"beyond float32, which no grid of levels holds"
    )
