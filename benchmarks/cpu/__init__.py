"""Times of the CPU kernels and of other libraries for the same work, on inputs whose right answer is known.

- `cases` and `suites` say what is measured, `contenders` who takes part: one file a library.
- `worker` is a process that serves one library, so that its threads, allocator and settings stay away from the others.
- `rounds` compares all outputs with the expected ones, then lets the workers take short turns with pauses between them:
  drift falls on all, and threads that spin for work are quiet. A row has medians over the turns.
- `quiet` waits between turns for a machine that does nothing else, and for the best `cores` that were met; it counts
  where it did not get them.
- `limits` measures what the CPU could do at most, `table` and `plot` show the rows, `command` is the command.

A peer gets what its documentation offers: weights packed before, its best layout, as many threads as we have. What a
layer of bits would still have to do after it (signs of sums, `k - 2 d` of distances) is left out in its favour.
Larq Compute Engine is converted by TensorFlow and wants NumPy 1, so it has an environment of its own: `--python`.
"""
