// The bar above all views: search, places and reasons, a condition in SQL, and what is chosen as chips.

import { $, ask, count, h, named, short, shown } from "./dom.js";
import { asked, filter, only, set, state } from "./state.js";

const values = {}; // of each column that can be chosen from, as they were first

export function showBar(run) {
  const focused = document.activeElement?.classList;
  const was = focused?.contains("search") ? "search" : focused?.contains("where") ? "where" : null;
  const folded = !document.querySelector(".filters.open");
  $("bar").replaceChildren(h("div", {},
    h("div", { class: folded ? "filters" : "filters open" },
      h("input", { class: "search", type: "search", placeholder: "Search id, URL, text", value: state.filter.search, "aria-label": "Search id, URL and text",
        onchange: (event) => { if (event.target.value !== state.filter.search) filter({ search: event.target.value }); } }),
      h("button", { class: "fold", onclick: (event) => event.target.parentNode.classList.toggle("open") }, "Filters"),
      run.facets.map((column) => chooser(run, column)),
      h("input", { class: "where", placeholder: `Condition in SQL: ${run.rules[0]?.when ?? "length(id) > 3"}`, value: state.filter.where, spellcheck: false,
        autocapitalize: "off", autocomplete: "off", "aria-label": "Condition in SQL", title: `Columns: ${Object.keys(run.columns).join(", ")}`,
        onchange: (event) => where(event.target) })),
    h("p", { class: "error", id: "wrong" }),
    h("div", { class: "chips" }, chips())));
  if (was) document.querySelector(`input.${was}`).focus();
}

// A condition is tried before it filters anything, so that a wrong one spoils no view.
async function where(field) {
  const text = field.value.trim();
  if (text === state.filter.where) return;
  $("wrong").textContent = "";
  try {
    if (text) await ask("page", { filter: { where: text }, limit: 1 });
    filter({ where: text });
  } catch (error) {
    $("wrong").textContent = error.message;
  }
}

function chooser(run, column) {
  const select = h("select", { "aria-label": named(column), onchange: () => {
    if (select.value !== "") set({ filter: only(column, JSON.parse(select.value)) });
  } }, h("option", { value: "" }, named(column)));
  const fill = async () => {
    if (!values[column]) values[column] = (await ask("counts", { by: column }).catch(() => ({ rows: [] }))).rows;
    if (select.options.length > 1) return;
    for (const row of values[column]) {
      if (row.value === null && row.all === run.total) continue;
      select.append(h("option", { value: JSON.stringify(row.value) }, `${String(shown(column, row.value)).slice(-60)} (${count(row.all)})`));
    }
    select.hidden = select.options.length < 2;
  };
  fill();
  return select;
}

function chips() {
  const found = [];
  const chip = (text, remove) => found.push(h("span", { class: "chip" }, h("span", { title: text }, text),
    h("button", { "aria-label": `remove ${text}`, onclick: remove }, "\u00d7")));
  for (const [column, some] of Object.entries(state.filter.is)) {
    chip(`${named(column)}: ${some.map((value) => shown(column, value)).join(" or ")}`, () => {
      const is = { ...state.filter.is };
      delete is[column];
      filter({ is });
    });
  }
  for (const [column, [from, below]] of Object.entries(state.filter.between)) {
    chip(`${column} from ${from === null ? "\u2212\u221e" : short(from)} to below ${below === null ? "\u221e" : short(below)}`, () => {
      const between = { ...state.filter.between };
      delete between[column];
      filter({ between });
    });
  }
  if (state.filter.search) chip(`with \u201c${state.filter.search}\u201d`, () => filter({ search: "" }));
  if (state.filter.where) chip(state.filter.where, () => filter({ where: "" }));
  if (Object.keys(asked()).length > 1 || found.length > 1) {
    found.push(h("button", { class: "plain small", onclick: () => set({ filter: { is: {}, between: {}, where: "", search: "" } }) }, "all records"));
  }
  return found;
}
