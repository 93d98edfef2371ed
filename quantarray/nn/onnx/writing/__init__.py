"""Networks as QONNX files."""
