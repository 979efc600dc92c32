"""The licence that a source file is under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator.api.findings import Shown
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator_text.code.languages import table_digest
from curator_text.code.licenses import load_licenses


@dataclass(kw_only=True)
class CodeLicense(Stage):
    """Tell the licence of a source file: what its head says, else what its repository says.

    Adds `license`, an SPDX expression (`MIT`, `Apache-2.0 OR MIT`); `license_source`: `spdx` (an
    SPDX-License-Identifier in the file), `header` (words of a well-known licence or header in its first
    6,000 characters) or `repository`; `license_permissive` (bool): whether one may choose a permissive
    licence. Null where nothing tells it.

    `column`: the text. `repository_column`: the licence of the repository, where there is such a column;
    `text.code_files` makes it of the nearest LICENSE file. `table`: a YAML of your own in place of
    `curator_text/code/licenses.yaml`, which has the phrases and says what is permissive. Decide by the rule
    set `permissive_licenses`.

    Known limits: of a LICENSE with several licences the first is told, and a sentence such as
    "see LICENSE" tells nothing by itself. Source: SPDX License List 3.25; what is permissive: Blue Oak
    Council and ScanCode LicenseDB, as in The Stack v2 (arXiv 2402.19173, 2.2).
    """

    column: str = "text"
    repository_column: str = "repository_license"
    table: str | None = None

    sparse = ("license", "license_source", "license_permissive")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()},
                        adds={"license": pa.string(), "license_source": pa.string(),
                              "license_permissive": pa.bool_()})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        load_licenses(self.table)

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"table": table_digest(self.table)}

    def example_columns(self) -> dict[str, Shown]:
        return {"license": "text"}

    def setup(self, ctx: Context) -> None:
        self._licenses = load_licenses(self.table)

    def process(self, batch: TextBatch) -> TextBatch:
        repository: Sequence[str | None] = [None] * len(batch)
        if self.repository_column in batch.columns:
            repository = batch.column(self.repository_column)
        found = [self._of(text, other)
                 for text, other in zip(batch.column(self.column), repository, strict=True)]
        permissive = [None if one is None else self._licenses.is_permissive(one[0]) for one in found]
        return batch.with_columns({
            "license": pa.array([one and one[0] for one in found], pa.string()),
            "license_source": pa.array([one and one[1] for one in found], pa.string()),
            "license_permissive": pa.array(permissive, pa.bool_())})

    def _of(self, text: str | None, repository: str | None) -> tuple[str, str] | None:
        found = self._licenses.in_header(text) if text else None
        return found or ((repository, "repository") if repository else None)
