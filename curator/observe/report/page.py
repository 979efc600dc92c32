"""The report of a run: one HTML file that needs nothing else, for the browser, the phone and the printer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from curator.api import format as fmt
from curator.observe.report.examples import Group
from curator.observe.report.flow import shares, strips
from curator.observe.report.funnel import balance, inside, reasons_of
from curator.observe.report.graph import SIDE_OUTPUTS, kept, ports, takers

REASONS_MAX = 4  # named beside a stage; the table below has them all

Stats = Mapping[str, Any]


def render_report(stats: Stats, recipe: str = "", examples: Sequence[Group] = ()) -> str:
    """The HTML of `report.html`: flow, reasons, examples, times, files, alarms and the recipe's text. Everything is escaped."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined)
    environment.filters |= {"count": fmt.count, "size": fmt.size, "rate": fmt.rate, "duration": fmt.duration}
    template = environment.from_string(files("curator.observe.report").joinpath("report.html.j2").read_text("utf-8"))
    records = stats["records"]
    return template.render(
        stats=stats, recipe=recipe, records=records, share=fmt.share, inside=inside, plural=fmt.plural,
        balance=balance(stats), ended=shares({name: records[name] for name in ("written", *SIDE_OUTPUTS, "absorbed")}),
        speed=records["in"] / stats["seconds"] if stats["seconds"] else 0, rows=_flow(stats), times=_times(stats),
        reasons=_reasons(stats), columns=_columns(stats), tables=_tables(stats), examples=examples)


def _flow(stats: Stats) -> list[dict[str, Any]]:
    """For each stage its strip and what is said beside it."""
    taken = takers(stats["stages"])
    rows = []
    for strip in strips(stats["stages"]):
        stage = strip.stage
        reasons, more, rest = reasons_of(stage, REASONS_MAX)
        losses = [("dropped", reason, n) for reason, n in reasons]
        losses += [("dropped", fmt.plural(more, "more reason"), rest)] if more else []
        losses += [(ending, ending, stage[ending]) for ending in ("duplicate", "failed", "absorbed") if stage[ending]]
        branches = [(port, ports(stage).get(port, 0), ", ".join(names))
                    for (name, port), names in taken.items() if name == stage["name"] and port != "out"]
        above = [[rows[-1]["stage"]["name"], "out"]] if rows else []
        origin = ", ".join(f"{name} {port}".removesuffix(" out") for name, port in stage["after"])
        rows.append({"strip": strip, "stage": stage, "kept": kept(stage), "had": stage["in"] + stage["made"],
                     "losses": losses, "branches": branches,
                     "origin": "" if [list(end) for end in stage["after"]] == above else origin})
    return rows


def _times(stats: Stats) -> list[dict[str, Any]]:
    """Seconds of work by stage, longest first."""
    whole = sum(stage["busy_s"] for stage in stats["stages"])
    longest = max((stage["busy_s"] for stage in stats["stages"]), default=0)
    ranked = sorted(stats["stages"], key=lambda stage: -stage["busy_s"])
    return [{"stage": stage, "share": fmt.share(stage["busy_s"], whole), "percent": 100 * stage["busy_s"] / longest}
            for stage in ranked if stage["busy_s"]]


def _reasons(stats: Stats) -> list[dict[str, Any]]:
    """Every reason of every stage, in pipeline order, the most frequent first; rules that never fired last."""
    most = max((n for stage in stats["stages"] for n in stage["dropped"].values()), default=0)
    return [{"stage": stage["name"], "reason": reason, "rows": n, "share": fmt.share(n, stage["in"]),
             "percent": 100 * n / most if most else 0}
            for stage in stats["stages"]
            for reason, n in sorted(stage["dropped"].items(), key=lambda item: (-item[1], item[0]))]


def _tables(stats: Stats) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """The tables that stages made, those with one title and head together."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for stage in stats["stages"]:
        for table in stage.get("tables", ()):
            most = max((n for _, n, _ in table["rows"]), default=0)
            found.setdefault((table["title"], *table["head"]), []).extend(
                {"stage": stage["name"], "label": label, "rows": n, "share": fmt.share(n, of), "percent": 100 * n / most if most else 0}
                for label, n, of in table["rows"])
    return found


def _columns(stats: Stats) -> list[dict[str, Any]]:
    """What the measured columns hold, one line each."""
    found = []
    for stage in stats["stages"]:
        for name, summary in stage.get("columns", {}).items():
            if "min" in summary:
                holds = f"{summary['min']:.4g} to {summary['max']:.4g}"
            else:
                values = [f"{value} {fmt.count(n)}" for value, n in summary.get("values", {}).items()]
                holds = fmt.listing(values, 8) or "many values"
            found.append({"stage": stage["name"], "column": name, "holds": holds, "nulls": summary["nulls"],
                          "rows": summary["rows"]})
    return found
