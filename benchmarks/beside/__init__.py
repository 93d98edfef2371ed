"""What a convolution takes in a process that others work beside, or that uses other libraries too, and what these lose.

- `companions` has the libraries' calls; `blocks` times calls for a second or so, `worker` is the process that measures:
  of one companion or of one number of busy processes, all situations in turn, block by block, for many rounds.
- `summary` has ratios within a round, their medians and quartiles, and the table; `command` is the command.

A ratio compares blocks of one round, seconds apart: what a machine does by and by falls on both.
"""
