"""See what functions of PyTorch return where no module does: outside of modules, such as a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode, _push_mode


class Functions(TorchFunctionMode):
    """A mode that calls `see` with what functions return, and then with what they were called with.

    Inside of modules it is paused, as what they return is seen anyway.
    """

    def __init__(self, see: Callable[[Any], None]) -> None:
        super().__init__()
        self._see, self._paused = see, False

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, and see its result."""
        result = func(*args, **(kwargs or {}))
        if not torch.compiler.is_compiling():
            self._see(result)
            if result is None:  # of a call that changes an argument
                self._see(args)
        return result

    def pause(self) -> None:
        """Remove the mode from the stack of modes, if no other is above."""
        if _get_current_function_mode() is self:
            _pop_mode()
            self._paused = True

    def resume(self) -> None:
        """Put the mode back after a pause."""
        if self._paused:
            _push_mode(self)
            self._paused = False

    def __exit__(self, *exception: Any) -> None:
        """Remove the mode from the stack of modes."""
        if self._paused:
            self._paused = False
        else:
            super().__exit__(*exception)
