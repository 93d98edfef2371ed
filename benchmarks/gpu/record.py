"""A record of results: a JSON file that is complete after each case, and that a later run continues."""

import json
import os
from datetime import date
from pathlib import Path
from tempfile import NamedTemporaryFile

from ..cpu.contenders import OURS


class Record:
    """A record of rows by case, of failures, and of the machine; stored in a file if `path` is not empty."""

    def __init__(self, path, machine):
        self.path, self.machine, self.rows, self.failed = path, machine, {}, []
        if path and Path(path).exists():
            saved = json.loads(Path(path).read_text())
            other = {name for name, value in machine.items() if saved.get(name) != value}
            if other:
                raise ValueError(f"{path} is of another {', '.join(sorted(other))}; name another file")
            self.rows = {row["case"]: row for row in saved["rows"] if OURS in row["seconds"]}  # others are tried again

    def add(self, row):
        self.rows[row["case"]] = row
        self.write()

    def fail(self, lines):
        self.failed += lines
        self.write()

    def write(self):
        if not self.path:
            return
        saved = {"date": str(date.today()), **self.machine, "failed": self.failed, "rows": [*self.rows.values()]}
        with NamedTemporaryFile("w", dir=Path(self.path).resolve().parent, delete=False) as f:
            json.dump(saved, f, indent=1)
        os.replace(f.name, self.path)  # so that a run that is killed leaves a whole file
