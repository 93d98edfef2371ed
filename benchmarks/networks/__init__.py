"""Times and memory of `qa.nn.models` and of the same networks in float32 and int8 by other libraries.

- `topology` builds the float32 network in PyTorch from the model's own recipe: the same layers, shapes and parameters,
  with ReLU where ours quantises.
- `contenders` has each library: how it writes its network to a file, and how it makes a call of it.
- `worker` is a process that serves one library: it builds files, measures memory, and times calls in its turn.
- `measure` checks outputs and lets the workers take turns; `table` and `plot` show rows, `command` is the command.

Every peer gets images as float32, made before; ours gets bytes. Int8 networks are of each library's own post-training
quantisation, calibrated with random images: times do not depend on the values.
"""
