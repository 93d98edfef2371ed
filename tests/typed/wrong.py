"""Mistakes that mypy and pyright must both find: one on each line that ends in `# error`, and none elsewhere.

`tests/package/test_types.py` gives it to both checkers. It is not run.
"""

import numpy as np
from numpy.typing import NDArray

import quantarray as qa

image: NDArray[np.float32] = np.ones((1, 8, 8, 64), np.float32)
x = qa.quantize(image, qa.Sign())
w = qa.quantize(np.ones((16, 3, 3, 64)), qa.Sign(), scale_axis=0)
q = qa.encode(np.ones((3, 4), int), values=(-1, 1))

# Names and arguments

qa.conv2dd(x, w)  # error
print(qa.Any)  # error
qa.array([1, 2])  # error
qa.linalg.inv(q)  # error
q.dequantise()  # error
q.tolist()  # error
qa.conv2d(x, w, pading=1)  # error
qa.conv2d(x)  # error

# Dense arrays where packed ones belong

qa.conv2d(image, w)  # error
qa.conv2d(x, image)  # error
qa.linear(q, [[1, -1, 1, 1]])  # error
qa.matmul(image, q)  # error
q @ image  # error
qa.sum(image)  # error
qa.concatenate(q)  # error
qa.nn.Dense(image)  # error

# Values of arguments

qa.conv2d(x, w, padding="SAME")  # error
qa.conv2d(x, w, padding=(1, 2, 3))  # error
qa.conv2d(x, w, stride=0.5)  # error
qa.conv2d(x, w, data_format="NHCW")  # error
qa.max_pool2d(x, 2, data_format="nhwc")  # error
qa.conv2d(x, w, requantize=[0.0])  # error
qa.avg_pool2d(x, 2, requantize=0)  # error
qa.quantize(image, 2)  # error
qa.pad(q, 1, mode="reflect")  # error
qa.to_packbits(q, bitorder="msb")  # error
qa.searchsorted(q[0], 1, side="middle")  # error
q.sum(axis=0.5)  # error
q.sum(axis="rows")  # error

# Results taken for what they are not

qa.conv2d(x, w).dequantize()  # error
qa.conv2d(x, w, requantize=qa.Thresholds([0])).astype(int)  # error
qa.linear(q, q).codes()  # error
print((q @ q.T).words)  # error
(q + 1).tolist()  # error
q.sum().codes()  # error
q.sum(axis=0).dequantize()  # error
q[0].astype(int)  # error
packed: qa.QuantArray = qa.linear(q, q)  # error
values: NDArray[np.float32] = q * 2  # error
if_all: qa.QuantArray = (q == 1).all()  # error

# What packed arrays do not do

q[0, 0] = 1  # error
del q[0]  # error
q["first"]  # error
q + "1"  # error
q << 1  # error
q += "1"  # error
x.shape = (8, 8, 64)  # error
