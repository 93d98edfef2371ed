"""Times of linear layers with weights of few bits, of ours and of other programs, on the CPU.

- `cases` makes weights: blocks of GGUF's types, and codes with scales of rows or groups.
- `contenders` and `ggml` make a call of them in each program.
- `worker` is a process that serves one program: it compares results with float64 products and times calls in its turn.
- `command` is the command, `rate` measures what the CPU's products of bytes would allow.

A call is what a program does for new rows of float32, so their rounding to int8 is in the time. Of one thread the CPU
time counts, so that other processes disturb less; of more threads the time that passes.
"""
