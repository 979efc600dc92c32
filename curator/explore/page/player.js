// A player of sound with its waveform: click into it to go there.

import { h } from "./dom.js";

const MOST = 24e6; // bytes that are decoded for a waveform

export function player(source, size) {
  const audio = h("audio", { src: source, controls: true, preload: "metadata" });
  const canvas = h("canvas", { class: "wave", "aria-hidden": "true" });
  const box = h("div", { class: "player" }, canvas, audio);
  if (size > MOST) {
    canvas.hidden = true;
    return box;
  }
  let peaks = null;
  const draw = () => {
    if (!peaks || !canvas.clientWidth) return;
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const gone = (audio.currentTime / audio.duration || 0) * peaks.length;
    peaks.forEach((peak, i) => {
      pen.fillStyle = style.getPropertyValue(i < gone ? "--node" : "--muted");
      const high = Math.max(1, peak * (height - 2));
      pen.fillRect((i * width) / peaks.length, (height - high) / 2, Math.max(1, width / peaks.length - 1), high);
    });
  };
  canvas.addEventListener("click", (event) => {
    if (Number.isFinite(audio.duration)) audio.currentTime = (event.offsetX / canvas.clientWidth) * audio.duration;
    draw();
  });
  audio.addEventListener("timeupdate", draw);
  audio.addEventListener("seeked", draw);
  new ResizeObserver(draw).observe(canvas);
  waveform(source).then((found) => { peaks = found; canvas.dataset.ready = "1"; draw(); }, () => { canvas.hidden = true; });
  return box;
}

async function waveform(source) {
  const content = await (await fetch(source)).arrayBuffer();
  const sound = await new OfflineAudioContext(1, 1, 44100).decodeAudioData(content);
  const samples = sound.getChannelData(0), bins = 160;
  const peaks = new Array(bins).fill(0);
  const step = Math.max(1, Math.floor(samples.length / 400000));
  for (let i = 0; i < samples.length; i += step) {
    const bin = Math.min(bins - 1, Math.floor((i * bins) / samples.length));
    peaks[bin] = Math.max(peaks[bin], Math.abs(samples[i]));
  }
  const most = Math.max(...peaks, 1e-9);
  return peaks.map((peak) => peak / most);
}
