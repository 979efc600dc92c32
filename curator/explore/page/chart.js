// A histogram on a canvas, with a threshold that can be dragged, or a range that can be drawn.

import { h, share, short } from "./dom.js";

const FOOT = 18; // pixels for the numbers below
const STEPS = 400; // so many places a threshold can take along the scale, at least

// -- scales: a value to a place from 0 to 1, and back --------------------------------------------------------

export function place(scale, x) {
  const bent = scale.kind === "asinh" ? Math.asinh(x / scale.unit) : x;
  return Math.min(1, Math.max(0, (bent - scale.low) / (scale.high - scale.low)));
}

export function at(scale, u) {
  const bent = scale.low + u * (scale.high - scale.low);
  return scale.kind === "asinh" ? Math.sinh(bent) * scale.unit : bent;
}

// A value near this one that is short to write, no farther off than a drag can tell.
export function round(scale, x) {
  if (scale.whole) return Math.round(x);
  const u = place(scale, x);
  const step = Math.abs(at(scale, Math.min(1, u + 1 / STEPS)) - at(scale, Math.max(0, u - 1 / STEPS))) / 2;
  const digits = Math.max(-15, Math.floor(Math.log10(step || 1e-12)));
  const unit = 10 ** digits;
  return Number((Math.round(x / unit) * unit).toPrecision(12));
}

export function next(scale, x, way, far) {
  if (scale.whole) {
    const wide = Math.max(1, Math.round(Math.abs(at(scale, Math.min(1, place(scale, x) + 0.005)) - x)));
    return Math.round(x) + way * (scale.kind === "linear" && scale.bins < 480 ? 1 : wide) * (far ? 10 : 1);
  }
  return round(scale, at(scale, place(scale, x) + (way * (far ? 10 : 1)) / STEPS));
}

// The place of the line between what is below a threshold and what is not, on whole numbers too.
function edge(scale, value, operator) {
  if (!(scale.whole && scale.kind === "linear")) return value;
  return value + (operator === "<" || operator === ">=" ? -0.5 : 0.5);
}

// How many of these counts lie below a value; inside a bin, as if they were spread evenly.
export function below(scale, counts, value, operator = "<") {
  if (!counts) return 0;
  const where = place(scale, edge(scale, value, operator)) * scale.bins;
  const bin = Math.floor(where);
  let sum = 0;
  for (let i = 0; i < Math.min(bin, counts.length); i += 1) sum += counts[i];
  if (bin < counts.length) sum += counts[bin] * (where - bin);
  return Math.round(sum);
}

export const total = (counts) => (counts ?? []).reduce((sum, n) => sum + n, 0);

function ticks(scale, width) {
  const wanted = Math.max(2, Math.min(6, Math.floor(width / 70)));
  if (scale.kind === "asinh") {
    const found = [];
    for (let i = 0; i <= wanted; i += 1) {
      const x = at(scale, i / wanted);
      const size = x ? 10 ** Math.floor(Math.log10(Math.abs(x))) : 1;
      found.push(Number((Math.round(x / size) * size).toPrecision(12)));
    }
    const low = at(scale, 0), high = at(scale, 1);
    return [...new Set(found)].filter((x) => x >= low && x <= high);
  }
  const rough = (scale.high - scale.low) / wanted;
  const size = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((n) => n * size).find((n) => n >= rough) ?? rough;
  if (scale.whole) step = Math.max(1, step);
  const found = [];
  for (let x = Math.ceil(scale.low / step) * step; x <= scale.high + step * 1e-9; x += step) found.push(Number(x.toPrecision(12)));
  return found;
}

// -- the chart ------------------------------------------------------------------------------------------------

// `line`: {value, was, operator, label} or none. `onmove(value)` while it is dragged, `ondone(value)` behind that; `onrange(from,
// below)` where there is no line. `data`: {scale, counts, drops}.
export class Chart {
  constructor({ label, line = null, onmove = null, ondone = null, onrange = null, log = false }) {
    Object.assign(this, { line, onmove, ondone, onrange, log, data: null });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.band = h("div", { class: "band", hidden: true });
    this.element = h("div", { class: "chart", role: "group", "aria-label": label }, this.canvas, this.band, this.tip);
    if (line) {
      this.was = h("div", { class: "was", hidden: true });
      this.handle = h("div", { class: "handle", role: "slider", tabIndex: 0, "aria-label": line.label, "aria-orientation": "horizontal",
        title: "drag, or arrow keys", onpointerdown: (event) => this.grab(event), onkeydown: (event) => this.press(event) });
      this.element.append(this.was, this.handle);
    } else if (onrange) this.canvas.addEventListener("pointerdown", (event) => this.brush(event));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.element);
  }

  show(data) {
    this.data = data;
    this.draw();
  }

  u(event) {
    const box = this.canvas.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  }

  grab(event) {
    if (!this.data?.scale || event.button) return;
    event.preventDefault();
    this.handle.focus();
    this.handle.setPointerCapture(event.pointerId);
    const began = this.line.value;
    const move = (moved) => { this.to(round(this.data.scale, at(this.data.scale, this.u(moved)))); };
    const done = () => {
      this.handle.removeEventListener("pointermove", move);
      this.tip.hidden = true;
      if (this.line.value !== began) this.ondone(this.line.value);
    };
    this.handle.addEventListener("pointermove", move);
    this.handle.addEventListener("lostpointercapture", done, { once: true });
  }

  press(event) {
    const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -1, PageUp: 1 }[event.key];
    if (!this.data?.scale || (!way && event.key !== "Home" && event.key !== "End") || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const { scale } = this.data;
    if (way) this.to(next(scale, this.line.value, way, event.shiftKey || event.key.startsWith("Page")));
    else this.to(round(scale, at(scale, event.key === "Home" ? 0 : 1)));
    clearTimeout(this.later);
    this.later = setTimeout(() => this.ondone(this.line.value), 350);
  }

  to(value) {
    this.line.value = value;
    this.draw();
    this.onmove(value);
  }

  brush(event) {
    if (!this.data?.scale || event.button || event.pointerType === "touch") return;
    const began = this.u(event);
    this.canvas.setPointerCapture(event.pointerId);
    const ends = (moved) => [Math.min(began, this.u(moved)), Math.max(began, this.u(moved))];
    const move = (moved) => {
      const [from, to] = ends(moved);
      Object.assign(this.band.style, { left: `${100 * from}%`, width: `${100 * (to - from)}%` });
      this.band.hidden = false;
    };
    const done = (moved) => {
      this.canvas.removeEventListener("pointermove", move);
      this.band.hidden = true;
      const [from, to] = ends(moved);
      if (to - from > 0.008) this.onrange(round(this.data.scale, at(this.data.scale, from)), round(this.data.scale, at(this.data.scale, to)));
    };
    this.canvas.addEventListener("pointermove", move);
    this.canvas.addEventListener("pointerup", done, { once: true });
  }

  hover(event) {
    if (!this.data?.scale) return;
    const { scale, counts } = this.data;
    const x = round(scale, at(scale, this.u(event)));
    const all = Object.values(counts).reduce((sum, some) => sum + total(some), 0);
    const under = Object.values(counts).reduce((sum, some) => sum + below(scale, some, x), 0);
    this.say(this.u(event), `below ${short(x)}: ${share(under, all)}`);
  }

  say(u, text) {
    this.tip.textContent = text;
    this.tip.hidden = false;
    const width = this.element.clientWidth;
    this.tip.style.left = `${Math.min(Math.max(0, u * width + 10), Math.max(0, width - this.tip.offsetWidth))}px`;
  }

  draw() {
    const { canvas, data } = this;
    const width = this.element.clientWidth, height = this.element.clientHeight;
    if (!width || !data?.scale) return;
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.bars(pen, width, height - FOOT, colour);
    pen.fillStyle = colour("line");
    pen.fillRect(0, height - FOOT, width, 1);
    pen.fillStyle = colour("muted");
    pen.font = "11px system-ui, sans-serif";
    let free = -1;
    for (const x of ticks(data.scale, width)) {
      const text = short(x), half = pen.measureText(text).width / 2;
      const left = Math.min(Math.max(0, place(data.scale, x) * width - half), width - 2 * half);
      if (left < free) continue;
      pen.fillText(text, left, height - 4);
      free = left + 2 * half + 10;
    }
    this.drawLine();
  }

  // Bins are joined until each is as wide as a pixel or two, so that the highest stays the highest.
  bars(pen, width, height, colour) {
    const { scale } = this.data;
    const columns = Math.max(1, Math.min(scale.bins, Math.floor(width / 3)));
    const parts = this.parts();
    const sums = parts.map(([, values]) => {
      const joined = new Array(columns).fill(0);
      values.forEach((n, i) => { joined[Math.min(columns - 1, Math.floor((i * columns) / scale.bins))] += n; });
      return joined;
    });
    const high = Math.max(1, ...sums[0].map((_, i) => sums.reduce((sum, some) => sum + some[i], 0)));
    const size = (n) => (this.log ? Math.log1p(n) / Math.log1p(high) : n / high) * (height - 4);
    const gap = width / columns > 5 ? 1 : 0;
    for (let i = 0; i < columns; i += 1) {
      let sum = 0;
      parts.forEach(([name], k) => {
        const n = sums[k][i];
        if (!n) return;
        const bottom = size(sum), top = Math.max(size(sum + n), bottom + 1);
        pen.fillStyle = colour(name);
        pen.fillRect((i * width) / columns, height - top, width / columns - gap, top - bottom);
        sum += n;
      });
    }
  }

  // The groups from the bottom up, with the colour of what they would become: a threshold that moves takes some, brings some back.
  parts() {
    const { scale, counts, drops } = this.data;
    const empty = new Array(scale.bins).fill(0);
    const get = (name) => counts[name] ?? empty;
    if (!this.line) return [["written", get("kept")], ["rest", get("elsewhere")]];
    const border = this.line.off ? null : place(scale, edge(scale, this.line.value, this.line.operator)) * scale.bins;
    const dropped = (i) => border !== null && (drops === "below" ? i + 0.5 < border : i + 0.5 > border);
    const split = (values, wanted) => values.map((n, i) => (dropped(i) === wanted ? n : 0));
    const staying = split(get("kept_movable"), false);
    const plain = get("kept").map((n, i) => n + staying[i]);
    return [
      ["written", plain], ["failed", split(get("kept_movable"), true)], ["back", split(get("this_movable"), false)],
      ["dropped", get("this").map((n, i) => n + get("this_caught")[i] + (dropped(i) ? get("this_movable")[i] : 0))], ["rest", get("elsewhere")],
    ];
  }

  drawLine() {
    if (!this.line) return;
    const { scale } = this.data;
    const left = (value) => `${100 * place(scale, edge(scale, value, this.line.operator))}%`;
    this.handle.style.left = left(this.line.value);
    this.handle.setAttribute("aria-valuenow", this.line.value);
    this.handle.setAttribute("aria-valuemin", at(scale, 0));
    this.handle.setAttribute("aria-valuemax", at(scale, 1));
    this.handle.setAttribute("aria-valuetext", `${this.line.operator} ${short(this.line.value)}`);
    this.was.hidden = this.line.was === this.line.value;
    this.was.style.left = left(this.line.was);
  }

  // What moves when the threshold does: kept records that would go, and dropped ones that would come back.
  moved() {
    const { scale, counts, drops } = this.data;
    const { value, operator, off } = this.line;
    const part = (name) => {
      const under = below(scale, counts[name], value, operator), all = total(counts[name]);
      const inside = off ? 0 : drops === "below" ? under : all - under;
      return { inside, outside: all - inside };
    };
    const caught = part("this_caught").outside;
    return { lost: part("kept_movable").inside, back: part("this_movable").outside, caught };
  }
}
