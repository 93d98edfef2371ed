"""Larq Compute Engine: TensorFlow's converter makes a model of binary convolutions, its interpreter runs it.

It wants NumPy 1 and a TensorFlow of that time, this package NumPy 2, so it has an environment of its own:

    python -m venv larq && larq/bin/pip install larq-compute-engine "tensorflow-cpu==2.16.*" "numpy<2"
    python -m benchmarks cpu --python larq=larq/bin/python

Images and results are float32, as its interpreter takes and gives them; the signs of an image are in its time, and
next to nothing of it. "larq" is how it comes, "larq indirect" its other kernel, which has to be asked for.
"""

import os
import tempfile
from importlib.metadata import version as version_of

import numpy as np

from ..cases import Conv
from . import Entry

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from larq_compute_engine import convert_saved_model
from larq_compute_engine.tflite.python.interpreter_wrapper_lite import LiteInterpreter

PLAIN, INDIRECT = "larq", "larq indirect"


def version():
    return version_of("larq-compute-engine")


def entries(case, threads):
    if not isinstance(case, Conv):
        return {}
    if case.bits != (1, 1) or case.groups > 1:
        return dict.fromkeys((PLAIN, INDIRECT), "its binary convolution takes -1 and 1 without groups")
    if case.padding and case.stride > 1:
        return dict.fromkeys((PLAIN, INDIRECT), "TensorFlow pads strided images on one side only")
    model = converted(case)
    return {title: entry(case, model, threads, title == INDIRECT) for title in (PLAIN, INDIRECT)}


def converted(case):
    weights = case.inputs()["w"].astype(np.float32).transpose(1, 2, 3, 0)

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec(case.shapes[0], tf.float32)])
        def __call__(self, x):
            signs = tf.sign(tf.sign(x) + 0.1)  # the pattern that the converter knows
            return tf.nn.conv2d(signs, tf.constant(weights), case.stride, "SAME" if case.padding else "VALID")

    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(model, folder, signatures=model.__call__.get_concrete_function())
        return convert_saved_model(folder)


def entry(case, model, threads, indirect):
    interpreter, x = LiteInterpreter(model, threads, False, indirect, False), case.inputs()["x"].astype(np.float32)

    def read(outputs):
        return outputs[0] > 0 if case.out == "bits" else outputs[0].astype(case.out)

    return Entry(lambda: interpreter.predict([x]), read)
