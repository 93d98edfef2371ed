"""`quantarray run NET IMAGE ..`: print file, class and label of image files, or of all images of a folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dtypes import Array
from ..nn import Graph, Network
from ..nn.images import files_of
from . import output


def classify(args: argparse.Namespace, network: Network | Graph, batch: int) -> int:
    """Print the classes of each image."""
    others = {"--check": args.check, "--input": args.input, "--output": args.output, "--labels": args.labels}
    for name, value in others.items():
        if value:
            raise ValueError(f"run: image files are classified without {name}")
    files = [file for path in args.images for file in files_of("run", path)][: args.limit]
    if isinstance(network, Network):  # known before anything runs
        check_scores(args.network, (1, *network.plain.layers[-1].shape))
    predictions = network.predict([str(file) for file in files], batch=batch, progress=True)
    rows = ranked(args.network, predictions.values, args.top or 1)
    names = _names(args.classes, network, predictions.values)
    results = [
        {"file": str(file), **_entry(top[0], names)}
        | ({"top": [_entry(t, names, True) for t in top]} if args.top else {})
        for file, top in zip(files, rows, strict=True)
    ]
    if args.json:
        output.print_json(results)
        return 0
    for result in results:
        print(f"{result['file']}: {'; '.join(map(_text, result.get('top', [result])))}")
    return 0


def ranked(path: Path, values: Any, count: int) -> list[list[tuple[int, float | int | None]]]:
    """Return the best classes of each row with their scores, best first; of classes instead of scores, those."""
    scores = by_class(path, values)
    if scores.ndim == 1:
        return [[(int(c), None)] for c in scores]
    order = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :count]
    return [[(int(c), row[c].item()) for c in best] for row, best in zip(scores, order, strict=True)]


def by_class(path: Path, values: Any) -> Array:
    """Return scores [n classes], or classes [n] where a network returns those, as one that ends in ArgMax does."""
    if isinstance(values, dict):
        raise ValueError(f"run: {path} returns {len(values)} outputs, {', '.join(values)}, and no class scores")
    values = np.asarray(values)
    check_scores(path, values.shape)
    flat: Array = values.reshape(len(values), -1)
    return flat[:, 0] if flat.shape[1] == 1 and flat.dtype.kind in "iu" else flat


def check_scores(path: Path, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless results of this shape are a score for each class."""
    if sum(n > 1 for n in shape[1:]) > 1:
        raise ValueError(f"run: {path} returns no class scores, {('N', *shape[1:])}")


def _names(file: Path | None, network: Network | Graph, values: Any) -> tuple[str, ...] | None:
    """Return the names of classes: lines of a file, or those that the network holds."""
    if file is None:
        return network.plain.classes if isinstance(network, Network) else network.classes
    names = class_names("run", file)
    classes = int(np.prod(values.shape[1:]))
    if classes > 1 and len(names) != classes:
        raise ValueError(f"run: --classes must have a line for each of {classes} classes, {file} has {len(names)}")
    return names


def class_names(op: str, file: Path) -> tuple[str, ...]:
    """Return the names of classes in a text file, one a line."""
    try:
        names = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    except UnicodeDecodeError as error:
        raise ValueError(f"{op}: --classes must be a text file in UTF-8, {file} is none: {error}") from error
    if not names:
        raise ValueError(f"{op}: --classes must have a line for each class, {file} is empty")
    return names


def _entry(
    ranked: tuple[int, float | int | None], names: tuple[str, ...] | None, scored: bool = False
) -> dict[str, Any]:
    c, score = ranked
    entry: dict[str, Any] = {"class": c, "label": names[c] if names is not None and 0 <= c < len(names) else None}
    return entry | ({"score": score} if scored else {})


def _text(entry: dict[str, Any]) -> str:
    label = "" if entry["label"] is None else f", {entry['label']}"
    score = entry.get("score")
    return f"class {entry['class']}{label}" + ("" if score is None else f" ({score:.6g})")
