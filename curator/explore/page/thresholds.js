// Rules with their thresholds, to be dragged; and the scores that no rule looks at.

import { $, ask, count, h, named, plural, share, short, signed, toast } from "./dom.js";
import { Chart } from "./chart.js";
import { asked, changes, filter, key, set, state } from "./state.js";
import { name, open } from "./tile.js";

const OFF = null;

let log = localStorage.getItem("log") === "1";
let cards = [];
let seen = null;

export function showThresholds(main, run) {
  const groups = run.stages.filter((stage) => run.rules.some((rule) => rule.stage === stage));
  begin();
  build(main, [
    tools(["kept", "dropped by this rule", "elsewhere", "comes back", "goes"], ["kept", "this", "elsewhere", "comes", "goes"]),
    run.rules.length ? null : h("p", { class: "muted" }, "No step of this run drops records by thresholds. The scores are under Scores."),
    groups.map((stage) => group(run, stage, run.rules.filter((rule) => rule.stage === stage))),
  ]);
}

// Rules that dropped nothing wait folded, and ask nothing until they are wanted.
function group(run, stage, rules) {
  const drops = (rule) => run.reasons[key(rule)] ?? 0;
  const first = rules.filter((rule) => drops(rule) || key(rule) in state.changes).sort((a, b) => drops(b) - drops(a));
  const others = rules.filter((rule) => !first.includes(rule));
  const shown = (some) => h("div", { class: "cards" }, some.map((rule) => card(new RuleCard(run, rule))));
  return [h("div", { class: "group" }, h("h2", {}, stage), h("span", { class: "muted" }, losses(run, stage))), shown(first),
    others.length ? h("details", { open: !first.length }, h("summary", {}, `${plural(others.length, "rule")} that dropped none`), shown(others)) : null];
}

export function showScores(main, run) {
  const ruled = new Set(run.rules.flatMap((rule) => rule.thresholds.map((one) => one.column)));
  const numbers = Object.keys(run.columns).filter((column) => run.columns[column] === "number" && column !== "_row"); // _row: where it lies
  const order = [...numbers.filter((column) => !ruled.has(column)), ...numbers.filter((column) => ruled.has(column))];
  begin();
  build(main, [
    tools(["kept", "not kept"], ["kept", "elsewhere"]),
    h("p", { class: "muted small" }, "Draw over a part of a histogram to see only the records in it."),
    order.length ? null : h("p", { class: "muted" }, "The records of this run have no numbers."),
    h("div", { class: "cards" }, order.map((column) => card(new ScoreCard(column)))),
  ]);
}

function losses(run, stage) {
  const told = run.funnel[stage];
  return told ? `${count(told.lost)} of ${count(told.in)} dropped` : "";
}

function tools(words, kinds) {
  return h("div", { class: "tools" },
    h("label", { class: "small" }, h("input", { type: "checkbox", id: "log", checked: log, onchange: (event) => logarithmic(event.target.checked) }),
      "logarithm of counts"),
    h("div", { class: "legend" }, words.map((word, i) => h("span", {}, h("i", { class: kinds[i] }), word))));
}

export function logarithmic(on = !log) {
  log = on;
  localStorage.setItem("log", on ? "1" : "0");
  if ($("log")) $("log").checked = on;
  for (const one of cards) if (one.chart) { one.chart.log = on; one.chart.draw(); }
}

function begin() {
  seen?.disconnect();
  for (const one of cards) one.end?.();
  cards = [];
}

function build(main, parts) {
  seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) { seen.unobserve(target); target.card.load(); }
  }, { rootMargin: "300px" });
  main.replaceChildren(...parts.flat(Infinity).filter(Boolean));
  for (const one of cards) seen.observe(one.element);
}

function card(one) {
  one.element.card = one;
  cards.push(one);
  return one.element;
}

// A filter that changed asks for all histograms again; a changed threshold does not.
export function renew(before) {
  const again = JSON.stringify(before.filter) !== JSON.stringify(state.filter);
  for (const one of cards) {
    if (again) one.data = null; // it is of another filter
    one.renew?.();
    if (!again) continue;
    one.says.textContent = "counting";
    seen.observe(one.element);
  }
}

// Of the records in the filter. Null where that has changed meanwhile: the answer for the new one is on its way, or there already.
async function within(name, of) {
  const given = asked();
  const same = () => JSON.stringify(given) === JSON.stringify(asked());
  try {
    const data = await ask(name, { ...of, filter: given });
    return same() ? data : null;
  } catch (error) {
    if (same()) throw error;
    return null;
  }
}

class RuleCard {
  constructor(run, rule) {
    Object.assign(this, { run, rule, at: 0, key: key(rule) });
    this.says = h("p", { class: "says small" });
    this.when = h("p", { class: "when mono" });
    this.body = h("div");
    this.near = h("div", { class: "near", hidden: true });
    this.switch = h("input", { type: "checkbox", onchange: () => this.change(this.switch.checked ? undefined : OFF) });
    this.element = h("section", { class: "card", "aria-label": `rule ${rule.reason}` },
      h("header", {}, h("h3", {}, rule.reason), h("label", { class: "small muted" }, this.switch, "on")),
      this.body, this.when, this.says, this.near);
    if (rule.thresholds.length > 1) this.tabs = h("div", { class: "tabs", role: "group", "aria-label": "threshold" });
    this.draw();
  }

  get values() {
    return state.changes[this.key] ?? this.rule.thresholds.map(() => null);
  }

  get isOff() {
    return this.key in state.changes && state.changes[this.key] === OFF;
  }

  value(at) {
    return this.values[at] ?? this.rule.thresholds[at].value;
  }

  // With the tab of another threshold this is all made anew.
  draw() {
    const threshold = this.rule.thresholds[this.at];
    if (threshold) {
      this.line = { value: this.value(this.at), was: threshold.value, operator: threshold.operator, label: `threshold of ${threshold.measure}`,
        off: this.isOff };
      this.chart?.watch.disconnect();
      this.chart = new Chart({ label: `histogram of ${threshold.measure}`, line: this.line, log,
        onmove: (value) => { this.input.value = value; this.estimate(true); }, ondone: (value) => this.move(value) });
      this.input = h("input", { type: "text", inputMode: "decimal", "aria-label": `${threshold.measure} ${threshold.operator}`,
        onchange: () => this.typed(), onkeydown: (event) => { if (event.key === "Enter") this.typed(); } });
      this.reset = h("button", { class: "plain small", onclick: () => this.change(undefined) }, "as it was");
      const controls = h("div", { class: "set small" }, h("span", { class: "mono break" }, `${threshold.measure} ${threshold.operator}`), this.input, this.reset);
      this.tabs?.replaceChildren(...this.rule.thresholds.map((one, i) => h("button", { "aria-pressed": String(i === this.at),
        onclick: () => { this.at = i; this.near.hidden = true; this.draw(); this.load(); } }, `${one.measure} ${one.operator}`)));
      this.body.replaceChildren(...[this.tabs, this.chart.element, controls].filter(Boolean));
    }
    this.renew();
  }

  renew() {
    const threshold = this.rule.thresholds[this.at];
    this.switch.checked = !this.isOff;
    this.element.classList.toggle("changed", this.key in state.changes);
    this.element.classList.toggle("off", this.isOff);
    this.when.hidden = this.rule.thresholds.length === 1 && this.rule.when.trim() === plain(threshold, this.rule.when);
    this.when.replaceChildren(...this.written());
    if (threshold) {
      this.line.value = this.value(this.at);
      this.line.off = this.isOff;
      this.input.value = this.line.value;
      this.reset.hidden = !(this.key in state.changes);
      this.chart.draw();
    }
    this.estimate(false);
    if (!(this.key in state.changes)) this.near.hidden = true;
  }

  // The condition with the present numbers, those that were moved in bold.
  written() {
    const letters = Array.from(this.rule.when);
    const parts = [];
    let from = 0;
    this.rule.thresholds.forEach((threshold, i) => {
      parts.push(letters.slice(from, threshold.start).join(""));
      parts.push(this.value(i) === threshold.value ? letters.slice(threshold.start, threshold.stop).join("") : h("b", {}, String(this.value(i))));
      from = threshold.stop;
    });
    return [...parts, letters.slice(from).join("")];
  }

  async load() {
    const threshold = this.rule.thresholds[this.at];
    if (!threshold) return this.estimate(false);
    try {
      const data = await within("histogram", { rule: { stage: this.rule.stage, reason: this.rule.reason, at: this.at } });
      if (!data || threshold !== this.rule.thresholds[this.at]) return undefined;
      this.data = data;
      if (!this.near.hidden) this.neighbours(); // they were of another filter
      this.chart.element.hidden = Boolean(data.empty); // what it shows is of another filter
      if (data.empty) this.says.textContent = `Nothing to show: ${data.empty}.`;
      else {
        this.chart.show(data);
        this.estimate(false);
      }
    } catch (error) {
      this.says.textContent = error.message;
    }
    return undefined;
  }

  estimate(dragging) {
    const drops = this.run.reasons[this.key] ?? 0;
    const filtered = Object.keys(asked()).length > 0;
    if (this.data && !this.data.empty && this.rule.thresholds.length) {
      const { lost, back, caught } = this.chart.moved();
      const here = ["this", "this_movable", "this_caught"].reduce((sum, name) => sum + (this.data.counts[name] ?? []).reduce((a, b) => a + b, 0), 0);
      const parts = [here ? `drops ${count(here)}` : "drops none"];
      if (this.key in state.changes || dragging) {
        const about = this.data.scale.whole && this.data.scale.kind === "linear" ? "" : "about "; // the line may cross a bin
        const now = here - back - caught + lost;
        if (now !== here) parts[0] = `drops ${about}${count(now)} instead of ${count(here)}`;
        if (back) parts.push(h("span", { class: "back" }, `${about}${count(back)} come back`));
        if (caught) parts.push(`${about}${count(caught)} go on to a later rule`);
        if (lost) parts.push(h("span", { class: "failed" }, `${about}${count(lost)} more go`));
        if (!back && !caught && !lost) parts.push("nothing changes hands");
        const alone = Object.keys(state.changes).every((one) => one === this.key); // what others change is told below
        if (alone && !filtered) parts.push(`keeps ${about}${share(this.run.places.data + back - lost, this.run.total)} of all`);
      } else if (here) parts.push(filtered ? "of those in the filter" : share(drops, this.run.total));
      this.says.replaceChildren(...parts.flatMap((part, i) => (i ? [", ", part] : [part])));
      if (dragging) this.chart.say(this.place(), `${this.line.operator} ${short(this.line.value)}`);
      else this.chart.tip.hidden = true;
    } else if (!this.rule.thresholds.length) {
      this.says.replaceChildren(drops ? `drops ${count(drops)}, ${share(drops, this.run.total)}` : "drops none");
    }
  }

  place() {
    return parseFloat(this.chart.handle.style.left) / 100;
  }

  typed() {
    const value = Number(this.input.value.trim().replace(",", "."));
    if (this.input.value.trim() === "" || !Number.isFinite(value)) {
      toast("A threshold is a number");
      this.input.value = this.line.value;
    } else if (value !== this.line.value) {
      this.line.value = value;
      this.move(value);
    }
  }

  move(value) {
    const values = this.values.slice();
    values[this.at] = value === this.rule.thresholds[this.at].value ? null : value;
    this.change(values.some((one) => one !== null) ? values : undefined);
    this.neighbours();
  }

  change(values) {
    const next = { ...state.changes };
    if (values === undefined) delete next[this.key];
    else next[this.key] = values;
    set({ changes: next });
  }

  // The records nearest to the line: what a person decides by.
  async neighbours() {
    const value = this.line.value;
    try {
      const found = await within("near", { value, limit: 4, rule: { stage: this.rule.stage, reason: this.rule.reason, at: this.at } });
      if (!found || value !== this.line.value) return;
      const sides = this.data?.drops === "above" ? ["above", "below"] : ["below", "above"];
      const side = (which, title) => [h("h4", {}, title), found[which].length ? found[which].map((row) => neighbour(row))
        : h("p", { class: "muted small" }, "none")];
      this.near.replaceChildren(...[side(sides[0], "Nearest that it would drop"), side(sides[1], "Nearest that it would keep")].flat(Infinity));
      this.near.hidden = false;
    } catch (error) {
      this.says.textContent = error.message;
    }
  }

  end() {
    this.chart?.watch.disconnect();
  }
}

function plain(threshold, when) {
  return Array.from(when).slice(threshold.start, threshold.stop).join("") === String(threshold.value) ? `${threshold.measure} ${threshold.operator} ${threshold.value}` : "";
}

function neighbour(row) {
  return h("button", { onclick: () => open(row) }, h("span", { class: "number muted" }, short(row._value)), h("span", { class: `dot ${row._place}`, title: row._place }),
    h("span", { class: "one" }, name(row)));
}

class ScoreCard {
  constructor(column) {
    this.column = column;
    this.says = h("p", { class: "says small muted" });
    this.chart = new Chart({ label: `histogram of ${column}`, log,
      onrange: (from, to) => filter({ between: { ...state.filter.between, [column]: [from, to] } }) });
    this.element = h("section", { class: "card", "aria-label": column }, h("header", {}, h("h3", {}, column),
      h("button", { class: "plain small", onclick: () => set({ tab: "records", sort: column, descending: false }) }, "least"),
      h("button", { class: "plain small", onclick: () => set({ tab: "records", sort: column, descending: true }) }, "most")), this.chart.element, this.says);
  }

  async load() {
    try {
      const data = await within("histogram", { column: this.column });
      if (!data) return;
      if (data.empty) {
        this.says.textContent = `Nothing to show: ${data.empty}.`;
        this.chart.element.hidden = true;
        return;
      }
      this.chart.element.hidden = false;
      this.chart.show(data);
      const none = Object.values(data.nulls).reduce((a, b) => a + b, 0);
      this.says.textContent = `${short(data.least)} to ${short(data.most)}${none ? `, ${count(none)} without a value` : ""}`;
    } catch (error) {
      this.says.textContent = error.message;
    }
  }

  end() {
    this.chart.watch.disconnect();
  }
}

// -- what all changes together do -----------------------------------------------------------------------------

let latest = 0;
let unfolded = false;

export async function showChanges(run) {
  const place = $("changes");
  const given = changes();
  const number = ++latest;
  if (!given.length) return place.replaceChildren();
  if (!place.firstChild) place.replaceChildren(panel(run, h("span", { class: "muted" }, "counting"), null));
  try {
    const found = await ask("what_if", { changes: given });
    if (number === latest) place.replaceChildren(panel(run, sum(found), found));
  } catch (error) {
    if (number === latest) place.replaceChildren(panel(run, h("span", { class: "failed" }, error.message), null));
  }
  return undefined;
}

function sum(found) {
  const reach = Object.entries(found.open);
  const most = found.after + reach.reduce((all, [, n]) => all + n, 0), all = found.before + found.not_kept;
  const range = (from, to) => (from === to ? from : `${from} to ${to}`);
  return [h("span", {}, "Kept ", count(found.before), " \u2192 ", h("b", {}, range(count(found.after), count(most))), `, ${range(share(found.after, all), share(most, all))} of all`),
    found.back ? h("span", { class: "back" }, `${count(found.back)} come back`) : null,
    reach.map(([stage, n]) => h("span", { class: "back" }, `${count(n)} come back as far as ${stage}`)),
    found.lost ? h("span", { class: "failed" }, `${count(found.lost)} go`) : null];
}

function panel(run, text, found) {
  const more = h("div", { hidden: !unfolded });
  if (found) more.append(details(run, found));
  const toggle = h("button", { id: "unfold", "aria-expanded": String(unfolded), onclick: () => {
    unfolded = !unfolded;
    more.hidden = !unfolded;
    toggle.setAttribute("aria-expanded", String(unfolded));
    toggle.textContent = unfolded ? "Less" : "What changes";
  } }, unfolded ? "Less" : "What changes");
  return h("section", { class: "panel", "aria-label": "Changes" }, h("div", { class: "sum" }, text, h("span", {}, found ? toggle : null,
    h("button", { id: "save", onclick: save, title: "the rules as YAML files (s)" }, "Save rules"),
    h("button", { id: "copy", onclick: copy, title: "the arguments of curator run (c)" }, "Copy --set"),
    h("button", { id: "reset", onclick: () => set({ changes: {} }) }, "Reset"))), more);
}

function details(run, found) {
  const table = (title, names, rows) => h("div", {}, h("h3", {}, title), h("div", { class: "wide" }, h("table", {},
    h("tr", {}, h("th"), names.map((one) => h("th", { class: "number" }, one))), rows)));
  const cell = (text, kind = "") => h("td", { class: `number ${kind}` }, text);
  const line = (title, ...cells) => h("tr", {}, h("td", { class: "name" }, title ?? "no value"), cells);
  const reasons = table("Dropped by reason", ["was", "would be", ""], found.reasons.map((row) => line(row.name, cell(count(row.before)),
    cell(count(row.after)), cell(signed(row.after - row.before), row.after > row.before ? "failed" : "back"))));
  const groups = Object.entries(found.by).filter(([, rows]) => rows.length).map(([column, rows]) => table(`By ${named(column)}`, ["come back", "go"],
    rows.map((row) => line(row.name, cell(row.back ? count(row.back) : "", "back"), cell(row.lost ? count(row.lost) : "", "failed")))));
  const some = (title, rows, place) => (rows.length ? h("div", { class: "near" }, h("h3", {}, title), rows.map((row) => h("button", { onclick: () => open(row) },
    h("span", { class: `dot ${place}` }), h("span", { class: "one" }, name(row)), h("span", { class: "muted small" }, row.after)))) : null);
  return h("div", {}, h("div", { class: "columns" }, found.reasons.length ? reasons : null, groups),
    h("div", { class: "columns" }, some("Some that come back", found.examples.back, "dropped"), some("Some that go", found.examples.lost, "data")),
    found.notes.map((note) => h("p", { class: "muted small" }, note)));
}

export async function save() {
  const given = changes();
  if (!given.length) return toast("No threshold was changed");
  try {
    const { files } = await ask("write", { changes: given });
    for (const { name: file, text } of files) {
      const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "application/yaml" })), download: file });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 5000);
    }
    return toast(`Saved ${files.map((file) => file.name).join(", ")}`);
  } catch (error) {
    return toast(error.message);
  }
}

export async function copy() {
  const given = changes();
  if (!given.length) return toast("No threshold was changed");
  try {
    const told = await ask("write", { changes: given });
    await navigator.clipboard.writeText(told.arguments.join(" "));
    return toast("Copied the arguments of curator run");
  } catch (error) {
    return toast(error.message);
  }
}
