"""Draw what Tinier-YOLO, trained on PASCAL VOC, sees in photographs.

    pip install ".[plot]" scikit-image
    python examples/detect.py tinier-yolo-w1a3.npz [PHOTO ..] [--out docs/detection]

The file holds the network of QNN-MO-PYNQ (Xilinx, BSD-3-Clause) as plain integers (docs/plain-format.md): signs and
integer thresholds of the hidden layers, and the float32 arrays of the first and the last. `state_of` turns thresholds
into batch norms that give the same ones again, so `tinier_yolo` runs the trained network on photographs. Without a
PHOTO, it takes two that come with scikit-image.
"""

import argparse
from pathlib import Path

import numpy as np

import quantarray as qa

TOP = 4  # largest activation of the trained network; the model's is 1
EPSILON = 1e-5  # of the model's batch norms


def state_of(path):
    """Read the trained network as a state dict of `tinier_yolo`.

    The file's rows and columns are exchanged in the hidden layers, as in the FPGA's memory, and not in the first.
    """
    with np.load(path) as arrays:
        file = dict(arrays)
    state = {"conv0.weight": file["float_conv0_w"].transpose(3, 2, 0, 1)}  # stored [h w in out]
    state |= batch_norm("bn0", np.full(16, 1 / TOP), file["float_conv0_bias"] / TOP)
    for i in range(7):
        state[f"conv{i + 1}.weight"] = file[f"w{i}"].transpose(0, 3, 2, 1)  # stored [out w h in]
        scale, offset = line(file[f"t{i}"])
        state |= batch_norm(f"bn{i + 1}", scale, offset / 7)
    state["conv8.weight"] = TOP * file["float_conv8_w"].transpose(3, 2, 0, 1)
    state["conv8.bias"] = file["float_conv8_bias"]
    return state


def batch_norm(name, scale, offset):
    """Return the parameters of a batch norm that computes scale * x + offset."""
    ones = np.ones(len(scale))
    arrays = {"weight": scale, "bias": offset, "running_mean": 0 * ones, "running_var": (1 - EPSILON) * ones}
    return {f"{name}.{key}": a.astype(np.float32) for key, a in arrays.items()}


def line(thresholds):
    """Return a and b with round(a * s + b) = the number of thresholds below s, for all integers s; of each channel.

    So a * t[k] + b < k + 1/2 < a * (t[k] + 1) + b for each k. For a slope a, the offsets that are right form an
    interval, whose length is concave in a: the slope of the longest is found by ternary search.
    """
    t, half = thresholds.astype(np.float64), np.arange(thresholds.shape[1]) + 0.5

    def interval(a):
        low, high = (half - a[:, None] * (t + 1)).max(axis=1), (half - a[:, None] * t).min(axis=1)
        return high - low, (high + low) / 2

    low, high = np.zeros(len(t)), np.full(len(t), 8.0)
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        rises = interval(left)[0] < interval(right)[0]
        low, high = np.where(rises, left, low), np.where(rises, high, right)
    slope = (low + high) / 2
    length, offset = interval(slope)
    if not (length > 0).all():
        raise ValueError("detect: a channel's thresholds are not those of evenly spaced levels")
    return slope, offset


def photographs(paths):
    """{name: uint8 [h w 3]} of files, or of two photographs of scikit-image."""
    if not paths:
        from skimage import data

        return {"chelsea": data.chelsea(), "astronaut": data.astronaut()}
    from PIL import Image

    return {path.stem: np.asarray(Image.open(path).convert("RGB")) for path in paths}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", type=Path)
    parser.add_argument("photos", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs") / "detection")
    parser.add_argument("--threshold", type=float, default=0.25)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    net = qa.nn.models.tinier_yolo(state_of(options.network), int8=False)
    for name, photo in photographs(options.photos).items():
        grid = net(qa.nn.detection.letterbox(photo))
        (seen,) = qa.nn.detection.boxes(grid, threshold=options.threshold, photo=photo.shape)
        for corners, score, c in zip(*seen, strict=True):
            print(f"{name}: {qa.nn.detection.VOC[c]} {score:.2f} at {corners.round().astype(int).tolist()}")
        qa.nn.detection.draw(options.out / f"{name}.png", photo, seen)


if __name__ == "__main__":
    main()
