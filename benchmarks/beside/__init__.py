"""Times of a convolution beside busy processes, or in turns with other libraries' calls, and of those calls.

- `situations` has what is measured, by name; `companions` the calls of other libraries.
- `blocks` times calls for a second or so; `worker` is the process that measures one situation: with one thread and with
  two, alone and in turns, block by block, for many rounds.
- `summary` has rates and ratios with their quartiles as text, `command` is the command.

A ratio compares blocks of one round, seconds apart: what a machine does by and by falls on both.
"""
