"""What a classifier says of itself, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def card(says: Mapping[str, Any]) -> str:
    """Markdown. `says`: what stands in `classifier.json`."""
    features, data, metrics = says["features"], says["data"], says["metrics"]
    reads = (f"hashed n-grams of 1 to {features['ngrams']} words, 2^{features['bits']} columns"
             if features["ngrams"] else f"embeddings of {features['width']} numbers")
    kind = "logistic regression" if says["labels"] else "ridge regression"
    lines = [f"# {'Labels' if says['labels'] else 'Scores'} like those in `{data['label']}`", "",
             f"A {kind} over {reads} of the column `{data['column']}`, made by `text.train_classifier`.", "",
             f"- Trained on {data['trained']:,} records, of {data['annotated']:,} that have a value in "
             f"`{data['label']}`; tried on {data['held_out']:,} others, chosen by a hash of their ids (seed "
             f"{data['seed']}).",
             f"- Weight of the squared weights in the loss: {data['l2']:g}.", ""]
    if not metrics:
        return "\n".join([*lines, "No record was held out, so nothing is known of how right it is.", ""])
    if not says["labels"]:
        lines += ["| on records held out | |", "| --- | --- |",
                  f"| root of the mean squared error | {metrics['rmse']} |",
                  f"| the same, if the mean were always told | {metrics['rmse_without']} |",
                  f"| Spearman's correlation of ranks | {metrics['spearman']} |"]
    else:
        lines += ["| on records held out | |", "| --- | --- |", f"| accuracy | {metrics['accuracy']} |",
                  f"| the same, if the commonest label were always told | {metrics['accuracy_without']} |",
                  f"| mean of F1 over labels | {metrics['macro_f1']} |", "",
                  "| label | records | precision | recall | F1 | average precision |",
                  "| --- | --- | --- | --- | --- | --- |"]
        lines += [f"| {label} | " + " | ".join(str(one[name]) for name in (
            "records", "precision", "recall", "f1", "average_precision")) + " |"
            for label, one in metrics["labels"].items()]
    return "\n".join([*lines, "", "Use: `text.classify: {model: this folder}`"
                      + ("" if says["labels"] else " with `regression: true`") + ".", ""])
