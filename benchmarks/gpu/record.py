"""What is written down: a file of JSON that is complete after each case, and is continued where a run ended."""

import json
import os
from datetime import date
from pathlib import Path
from tempfile import NamedTemporaryFile

from ..cpu.contenders import OURS


class Record:
    """Rows by case, what failed, and what they were measured on; kept in a file if there is a path."""

    def __init__(self, path, machine):
        self.path, self.machine, self.rows, self.failed = path, machine, {}, []
        if path and Path(path).exists():
            found = json.loads(Path(path).read_text())
            other = {name for name, value in machine.items() if found.get(name) != value}
            if other:
                raise ValueError(f"{path} is of another {', '.join(sorted(other))}; name another file")
            self.rows = {row["case"]: row for row in found["rows"] if OURS in row["seconds"]}  # others are tried again

    def add(self, row):
        self.rows[row["case"]] = row
        self.write()

    def fail(self, lines):
        self.failed += lines
        self.write()

    def write(self):
        if not self.path:
            return
        made = {"date": str(date.today()), **self.machine, "failed": self.failed, "rows": [*self.rows.values()]}
        with NamedTemporaryFile("w", dir=Path(self.path).resolve().parent, delete=False) as f:
            json.dump(made, f, indent=1)
        os.replace(f.name, self.path)  # so that a run that is killed leaves a whole file
