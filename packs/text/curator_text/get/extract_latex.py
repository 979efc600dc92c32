"""Papers in LaTeX as training sets have them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from curator.api.stage import Contract, Stage
from curator.api.tasks import TextBatch
from curator_text.get.latex import cleaned


@dataclass(kw_only=True)
class ExtractLatex(Stage):
    """Clean papers in LaTeX: without preamble, comments, bibliography and appendix, macros expanded, formulas
    and headings as they were written.

    Reads `latex`; adds `text` (LaTeX from the abstract, or the first section, on), `title` and `abstract`
    (null where there is none); removes `latex`. A null gives nulls. A paper that takes more than its time
    leaves on `failed`.

    `macros`: those without arguments are replaced by what they stand for, those with arguments stay.
    `bibliography`, `appendix`: keep them; what comes behind the bibliography counts as appendix.

    Known differences: of the source, title and abstract are lost, percent signs in verbatim begin comments,
    and a paper without sections has no text.

    Source: RedPajama-Data, branch rp_v1, data_prep/arxiv.
    """

    macros: bool = True
    bibliography: bool = False
    appendix: bool = False

    timeout_s = 60.0
    batch_size = 64

    def contract(self) -> Contract:
        return Contract(needs={"latex": pa.string()}, removes=("latex",),
                        adds={name: pa.string() for name in ("text", "title", "abstract")})

    def process(self, batch: TextBatch) -> TextBatch:
        found = [None if latex is None else
                 cleaned(latex, macros=self.macros, bibliography=self.bibliography, appendix=self.appendix)
                 for latex in batch.column("latex")]
        return batch.without(["latex"]).with_columns({
            name: pa.array([getattr(one, name, None) for one in found], pa.string())
            for name in ("text", "title", "abstract")})
