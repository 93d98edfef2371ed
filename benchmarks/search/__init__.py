"""Times and recall of searches for the nearest rows, of ours and of other libraries, on the CPU.

- `cases` makes vectors, codes and queries, the same in each process, and knows the nearest by floats or by NumPy.
- `contenders` makes a call of a case in each library; modes of a library are contenders of their own.
- `worker` is a process that serves one: it finds out how many of the nearest its calls find, and times them in turn.
- `command` is the command.

Building an index is not in the time. Of one thread the CPU time counts, so that other processes disturb less; of more
threads the time that passes.
"""
