"""`curator what-if` and `curator recut`: other thresholds, told and made."""

from __future__ import annotations

import click

from curator.cli.ends import asked, end, json_option, quiet_option, run_and_show, show_json, workers_option
from curator.cli.loading import run_argument, values_of

RULES = click.option("--rules", multiple=True, metavar="[STEP=]FILE",
                     help="A rule set (YAML) in place of all conditions of a drop step.")
SET = click.option("--set", "settings", multiple=True, metavar="PATH=CONDITION",
                   help="Another condition, for example steps.quality.too_short='word_count < 40'; `false` "
                        "drops nothing.")


@click.command("what-if", short_help="Show what other thresholds would have done to a run.")
@run_argument
@SET
@RULES
@json_option
def what_if(folder: str, settings: tuple[str, ...], rules: tuple[str, ...], as_json: bool) -> None:
    """Show what other conditions of drop steps would have done to the run in the folder RUN: both funnels,
    what changes hands, and examples. It is told from what the run wrote; nothing runs or is written.
    """
    from curator.results.what_if import what_if as ask
    from curator.results.what_if_text import show_what_if

    out, overrides = opened(folder, settings, rules)
    answer = ask(out, overrides)
    if as_json:
        show_json(answer)
    else:
        show_what_if(answer)


@click.command("recut", short_help="Make a run's data set anew, with other thresholds.")
@run_argument
@click.option("--to", required=True, metavar="FOLDER", help="Where the new data set goes.")
@SET
@RULES
@workers_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask before an edit removes results in FOLDER.")
@quiet_option
def recut(folder: str, to: str, settings: tuple[str, ...], rules: tuple[str, ...], workers: int | None,
          yes: bool, quiet: bool) -> None:
    """Write the data set that the run in the folder RUN would have made with other conditions of drop steps.
    It begins with the records that reached the first of them, as RUN has them; what stands before is not done
    again. RUN stays as it is, and FOLDER is a run like any other: the same command continues it.
    """
    from curator.results.recut import recut as prepare

    output, overrides = opened(folder, settings, rules)
    made = prepare(output, overrides, to)
    if not quiet:
        click.echo(made, err=True)
    end(run_and_show(made.pipeline, quiet=quiet, workers=workers, replace=lambda lost: yes or asked(lost)))


def opened(folder: str, settings: tuple[str, ...], rules: tuple[str, ...]):
    """The output of the run, and what is to be another value in its recipe."""
    from curator.results import RunOutput
    from curator.results.edits import with_rules

    out, overrides = RunOutput.open(folder), dict[str, str]()
    for one in rules:
        overrides |= with_rules(out, one)
    return out, overrides | values_of(settings, "steps.quality.too_short='word_count < 40'")
