// Records counted by a column: which source, language or reason loses most.

import { ask, count, h, named, share, shown } from "./dom.js";
import { asked, only, set, state } from "./state.js";

const PARTS = ["data", "dropped", "duplicate", "failed"];

let latest = 0;

export async function showGroups(main, run) {
  const number = ++latest;
  const by = state.by || run.facets.find((column) => column === "source" || column === "_folder") || run.facets[0];
  const columns = [...new Set([...run.facets, ...Object.keys(run.columns).filter((c) => ["text", "bool"].includes(run.columns[c]))])];
  const select = h("select", { "aria-label": "Count by", onchange: () => set({ by: select.value }) },
    columns.map((column) => h("option", { value: column, selected: column === by }, named(column))));
  const body = h("div", { class: "sheet" }, h("p", { class: "muted" }, "Counting"));
  main.replaceChildren(h("div", { class: "tools" }, h("label", {}, "Count by ", select)), body);
  try {
    const { rows, more } = await ask("counts", { by, filter: asked() });
    if (number !== latest) return;
    const order = rows.slice().sort((a, b) => (b.all - b.data) - (a.all - a.data));
    const most = Math.max(1, ...rows.map((row) => row.all));
    body.replaceChildren(...[h("div", { class: "wide" }, h("table", {}, h("tr", {}, h("th", {}, named(by)), h("th", { class: "number" }, "records"), h("th", { class: "number" }, "kept"),
      h("th", { class: "number" }, "lost"), h("th", { class: "number hide-narrow" }, "dropped"), h("th", { class: "number hide-narrow" }, "duplicate"), h("th", { class: "number hide-narrow" }, "failed")),
    order.map((row) => line(by, row, most)))), rows.length ? "" : h("p", { class: "muted" }, "No record."),
    more ? h("p", { class: "muted small" }, `Only the ${rows.length} most frequent are shown.`) : ""]);
  } catch (error) {
    if (number === latest) body.replaceChildren(h("p", { class: "error" }, error.message));
  }
}

function line(by, row, most) {
  const see = () => set({ tab: "records", filter: only(by, row.value) });
  const number = (n, kind, narrow) => h("td", { class: `number ${narrow ? "hide-narrow" : ""} ${n ? kind : "muted"}` }, count(n));
  return h("tr", { class: "link", onclick: see }, h("td", { class: "name" }, h("button", { class: "plain break", onclick: (event) => { event.stopPropagation(); see(); } }, shown(by, row.value)),
    h("div", { class: "stack", style: { width: `${Math.max(2, (100 * row.all) / most)}%` } }, PARTS.filter((part) => row[part]).map((part) => h("i", { class: part, style: { width: `${(100 * row[part]) / row.all}%` } })))),
  number(row.all, ""), number(row.data, ""), h("td", { class: "number" }, share(row.all - row.data, row.all)),
  number(row.dropped, "dropped", true), number(row.duplicate, "duplicate", true), number(row.failed, "failed", true));
}
