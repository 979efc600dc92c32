// What is looked at. All of it stands in the fragment of the address, so that a link shows the same.

const NOTHING = "\u2205"; // stands for no value
const PARTS = ["is", "between", "where", "search"];

export const state = {
  tab: "thresholds",
  filter: { is: {}, between: {}, where: "", search: "" },
  sort: "", descending: false, by: "", order: "", open: null, // order: a column of the groups; with a minus from the least
  changes: {}, // [stage, reason] as JSON: the values of its thresholds, or null for a rule that is off
};

const listeners = new Set();

export const changed = (listener) => listeners.add(listener);

let written = "";

export function set(parts, { replace = false } = {}) {
  const before = copy();
  Object.assign(state, parts);
  const fragment = "#" + text();
  if (fragment !== written) {
    written = fragment;
    history[replace ? "replaceState" : "pushState"](null, "", fragment);
  }
  tell(before);
}

export function filter(parts) {
  set({ filter: { ...state.filter, ...parts } });
}

export function only(column, value) {
  const is = { ...state.filter.is };
  is[column] = [value];
  return { ...state.filter, is };
}

// The filter as the server wants it.
export function asked(given = state.filter) {
  const some = PARTS.filter((part) => (typeof given[part] === "string" ? given[part].trim() : Object.keys(given[part]).length));
  return Object.fromEntries(some.map((part) => [part, given[part]]));
}

export const key = (rule) => JSON.stringify([rule.stage, rule.reason]);

export function changes() {
  return Object.entries(state.changes).map(([name, values]) => {
    const [stage, reason] = JSON.parse(name);
    return { stage, reason, values };
  });
}

function copy() {
  return JSON.parse(JSON.stringify(state));
}

function tell(before) {
  for (const listener of listeners) listener(state, before);
}

function text() {
  const found = new URLSearchParams();
  for (const [column, values] of Object.entries(state.filter.is)) {
    for (const value of values) found.append(`is.${column}`, value === null ? NOTHING : value);
  }
  for (const [column, [from, below]] of Object.entries(state.filter.between)) found.append(`in.${column}`, `${from ?? ""}..${below ?? ""}`);
  for (const name of ["where", "search"]) if (state.filter[name]) found.set(name, state.filter[name]);
  for (const name of ["sort", "by", "order"]) if (state[name]) found.set(name, state[name]);
  if (state.descending) found.set("descending", "1");
  for (const [name, values] of Object.entries(state.changes)) found.append("rule", JSON.stringify([...JSON.parse(name), values]));
  if (state.open) found.set("open", JSON.stringify(state.open));
  const query = found.toString();
  return state.tab + (query ? "?" + query : "");
}

function read() {
  const [tab, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  const next = { tab: tab || "thresholds", filter: { is: {}, between: {}, where: "", search: "" }, sort: "", descending: false,
    by: "", order: "", open: null, changes: {} };
  for (const [name, value] of new URLSearchParams(query)) {
    const column = name.slice(3);
    if (column === "__proto__") continue;
    if (name.startsWith("is.")) (next.filter.is[column] ??= []).push(value === NOTHING ? null : value);
    else if (name.startsWith("in.")) {
      next.filter.between[column] = value.split("..").map((end) => (end === "" || !Number.isFinite(+end) ? null : +end));
      if (next.filter.between[column].length !== 2) delete next.filter.between[column];
    } else if (name === "where" || name === "search") next.filter[name] = value;
    else if (name === "sort" || name === "by" || name === "order") next[name] = value;
    else if (name === "descending") next.descending = true;
    else {
      try {
        const given = JSON.parse(value);
        if (name === "open") next.open = given;
        if (name === "rule") next.changes[JSON.stringify(given.slice(0, 2))] = given[2];
      } catch { /* a link that was cut shows what is left of it */ }
    }
  }
  return next;
}

export function begin() {
  Object.assign(state, read());
  written = location.hash;
  addEventListener("popstate", () => {
    if (location.hash === written) return;
    const before = copy();
    written = location.hash;
    Object.assign(state, read());
    tell(before);
  });
}
