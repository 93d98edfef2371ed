"""Networks from ONNX and QONNX files."""
