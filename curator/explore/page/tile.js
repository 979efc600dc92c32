// What is said and shown of a record wherever it stands in a list: its name, what became of it and why, its picture or sound.

import { PLACES, blob, h, short } from "./dom.js";
import { set } from "./state.js";

// What a person would call a record.
export function name(row) {
  return row.title || (row._text ?? "").trim().slice(0, 120) || row.url || (row.source ?? "").split("/").pop() || row.key || row.id || "no name";
}

export function open(row) {
  set({ open: [row.id, row._place, row._stage] });
}

export function fate(row) {
  const word = row._place === "data" ? PLACES.data : row.reason ?? PLACES[row._place];
  return h("span", { class: "fate" }, h("i", { class: `dot ${row._place}` }), h("span", { class: row._place === "data" ? "written" : row._place }, word), row._place === "data" ? null : h("span", { class: "muted" }, ` ${row._stage}`));
}

// The values that met the rule.
export function why(run, row) {
  const rule = run.rules.find((one) => one.stage === row._stage && one.reason === row.reason);
  return (rule?.columns ?? []).filter((column) => row[column] !== undefined && row[column] !== null)
    .map((column) => `${column} ${typeof row[column] === "number" ? short(row[column]) : String(row[column]).slice(0, 60)}`);
}

// A picture of the record, or a player: what its columns hold, or the archive that it lies in.
export function media(run, row) {
  const of = (kind) => Object.keys(run.media).filter((column) => run.media[column] === kind);
  const box = h("div", { class: run.kinds.includes("audio") ? "media sound" : "media" });
  const sources = [...of("image").sort((a, b) => (b === "thumbnail") - (a === "thumbnail")).map((column) => ({ column }))];
  if (run.archives && row._place === "data" && row.key) sources.push({ of: "image" });
  const picture = (left) => {
    if (!left.length) { box.classList.add("none"); return; }
    const image = h("img", { src: blob(row, left[0]), alt: "", loading: "lazy", decoding: "async" });
    image.addEventListener("error", () => { image.remove(); picture(left.slice(1)); });
    box.prepend(image);
  };
  picture(sources);
  if (run.kinds.includes("audio")) {
    const [column] = of("audio");
    const what = run.archives && row._place === "data" && row.key ? { of: "audio" } : column ? { column } : null;
    if (what) box.append(h("audio", { controls: true, preload: "none", src: blob(row, what) }));
  }
  return box;
}
