"use strict";
// The page of a profile: columns of spans are unpacked into typed arrays, and canvases draw what is
// visible. Times are 32-bit integers in `data.tick` nanoseconds, so that a million spans are small.

const COLORS = {
  tensor: "#3b6fb6", vector: "#3f9b54", scalar: "#c2578a", gpsimd: "#8a62b8", sync: "#7a838f",
  queue: "#d9822b", sbuf: "#6aa5d8", psum: "#dba44c",
};
const ROW = 20, LABEL = 150, AXIS = 22;
const byId = (id) => document.getElementById(id);
const report = { ready: false, selected: null, arrows: [], view: [0, 1] };
window.report = report;

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function columnsOf(buffer, place) {
  return place === null ? new Uint32Array(0) : new Uint32Array(buffer, place[0], place[1]);
}

// The number of values that are less than `wanted` in an ascending array.
function before(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}

function canvasOf(id, height) {
  const canvas = byId(id), ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  return [context, width];
}

function timeText(ns) {
  const span = (report.view[1] - report.view[0]) * data.tick;
  return span > 4e6 ? (ns / 1e6).toFixed(3) + " ms" : span > 4e3 ? (ns / 1e3).toFixed(2) + " us"
    : ns.toFixed(1) + " ns";
}

const toX = (tick, width) =>
  LABEL + (tick - report.view[0]) / (report.view[1] - report.view[0]) * (width - LABEL);
const toTick = (x, width) =>
  report.view[0] + (x - LABEL) / (width - LABEL) * (report.view[1] - report.view[0]);

function drawAxis(context, width, height) {
  context.strokeStyle = "#e3e7ec";
  context.fillStyle = "#44505e";
  for (let part = 0; part <= 8; part++) {
    const x = LABEL + part / 8 * (width - LABEL);
    context.beginPath();
    context.moveTo(x, AXIS);
    context.lineTo(x, height);
    context.stroke();
    context.textAlign = part === 8 ? "right" : "left";
    context.fillText(timeText(toTick(x, width) * data.tick), x + (part === 8 ? -2 : 2), 14);
  }
  context.textAlign = "left";
}

// Of a track that has more spans than pixels, a pixel is dark as far as any span covers it.
function drawTrack(context, track, y, width) {
  context.fillStyle = COLORS[track.queue >= 0 ? "queue" : track.engine];
  const first = Math.max(before(track.start, report.view[0]) - 1, 0);
  const last = before(track.start, report.view[1]);
  if (last - first < 4 * width) {
    for (let at = first; at < last; at++) {
      const left = Math.max(toX(track.start[at], width), LABEL);
      const right = Math.min(toX(track.start[at] + track.length[at], width), width);
      if (right < LABEL) continue;
      context.fillRect(left, y + 2, Math.max(right - left - 0.5, 0.5), ROW - 4);
      if (right - left > 60) {
        context.fillStyle = "#fff";
        context.fillText(describe(track, at).name.slice(0, (right - left) / 6), left + 3, y + 14);
        context.fillStyle = COLORS[track.queue >= 0 ? "queue" : track.engine];
      }
    }
    return;
  }
  for (let x = LABEL; x < width; x++) {
    const from = toTick(x, width), until = toTick(x + 1, width);
    const at = before(track.start, until) - 1;
    if (at >= 0 && track.start[at] + track.length[at] > from) context.fillRect(x, y + 2, 1, ROW - 4);
  }
}

// A row for each semaphore that is shown: what gives units to it and what takes them.
function drawSemaphore(context, row, y, width) {
  for (const [events, color, top] of [[row.given, "#2f8f4e", 2], [row.taken, "#b23b3b", 10]]) {
    context.fillStyle = color;
    let drawn = -1;
    for (let at = before(events.time, report.view[0]); at < events.time.length; at++) {
      if (events.time[at] > report.view[1]) break;
      const x = Math.round(toX(events.time[at], width));
      if (x !== drawn) context.fillRect(drawn = x, y + top, 1.5, 8);
    }
  }
}

function rows() {
  return [...tracks, ...(byId("semaphores").checked ? semaphores() : [])];
}

function drawTimeline() {
  const shown = rows(), height = AXIS + shown.length * ROW + 4;
  const [context, width] = canvasOf("timeline", height);
  drawAxis(context, width, height);
  shown.forEach((row, number) => {
    const y = AXIS + number * ROW;
    context.fillStyle = "#1c2530";
    context.fillText(row.name.slice(0, 26), 2, y + 14);
    if (row.given) drawSemaphore(context, row, y, width); else drawTrack(context, row, y, width);
  });
  context.strokeStyle = "#b23b3b";
  context.fillStyle = "#b23b3b";
  for (const [one, other] of report.arrows) drawArrow(context, one, other, width);
  if (report.selected) {
    const { track, at } = report.selected, y = AXIS + tracks.indexOf(track) * ROW;
    const left = toX(track.start[at], width);
    context.strokeStyle = "#000";
    context.strokeRect(left, y + 1, Math.max(track.length[at] / (report.view[1] - report.view[0])
      * (width - LABEL), 1), ROW - 2);
  }
  drawMemory();
}

function drawArrow(context, one, other, width) {
  const from = toX(one.track.start[one.at] + one.track.length[one.at], width);
  const to = toX(other.track.start[other.at], width);
  const top = AXIS + tracks.indexOf(one.track) * ROW + ROW / 2;
  const bottom = AXIS + tracks.indexOf(other.track) * ROW + ROW / 2;
  context.beginPath();
  context.moveTo(from, top);
  context.bezierCurveTo(from + 20, top, to - 20, bottom, to, bottom);
  context.stroke();
  context.beginPath();
  context.moveTo(to, bottom);
  context.lineTo(to - 6, bottom - 3);
  context.lineTo(to - 6, bottom + 3);
  context.fill();
}

function drawMemory() {
  data.memories.forEach((memory, number) => {
    const height = 170, [context, width] = canvasOf("memory" + number, height);
    const scale = (height - AXIS) / Math.max(memory.used, 1);
    drawAxis(context, width, height);
    context.fillStyle = "#1c2530";
    context.fillText(`${memory.kind.toUpperCase()} core ${memory.core}`, 2, AXIS + 12);
    context.fillText(`${memory.used.toLocaleString("en")} of`, 2, AXIS + 26);
    context.fillText(`${memory.bytes.toLocaleString("en")} B/partition`, 2, AXIS + 40);
    const { begin, end, offset, size, name } = memory;
    for (let at = 0; at < begin.length; at++) {
      if (end[at] < report.view[0] || begin[at] > report.view[1]) continue;
      const left = Math.max(toX(begin[at], width), LABEL);
      const right = Math.min(toX(end[at], width), width);
      const top = AXIS + offset[at] * scale, tall = Math.max(size[at] * scale, 1);
      context.fillStyle = COLORS[memory.kind];
      context.fillRect(left, top, Math.max(right - left - 0.5, 0.5), tall > 2 ? tall - 0.5 : tall);
      if (right - left > 50 && tall > 9) {
        context.fillStyle = "#fff";
        context.fillText(data.names[name[at]].slice(0, (right - left) / 6), left + 3, top + 9);
      }
    }
  });
}

function drawRoofline() {
  const height = 220, [context, width] = canvasOf("roofline", height), roof = data.roofline;
  const points = roof.points.filter((point) => point.intensity > 0 && point.tflops > 0);
  const low = Math.min(0.1, ...points.map((p) => p.intensity / 2)), high = 1e5;
  const top = roof.peak_tflops * 2, bottom = Math.min(top / 1e5, ...points.map((p) => p.tflops / 2));
  const x = (value) => 60 + Math.log(value / low) / Math.log(high / low) * (width - 80);
  const y = (value) => 10 + Math.log(top / value) / Math.log(top / bottom) * (height - 40);
  const at = (intensity) => Math.min(roof.peak_tflops, intensity * roof.bytes_per_ns / 1e3);
  context.strokeStyle = "#3b6fb6";
  context.beginPath();
  for (let step = 0; step <= 200; step++) {
    const intensity = low * (high / low) ** (step / 200);
    context.lineTo(x(intensity), Math.min(y(at(intensity)), height - 30));
  }
  context.stroke();
  context.fillStyle = "#44505e";
  for (let tick = Math.ceil(Math.log10(low)); tick < 5; tick++)
    context.fillText(String(10 ** tick), x(10 ** tick), height - 14);
  context.fillText("flop/byte of HBM", width - 110, height - 2);
  context.fillText(`${roof.peak_tflops} TFLOP/s`, x(high) - 90, y(roof.peak_tflops) - 3);
  context.fillText(`${roof.bytes_per_ns.toFixed(0)} GB/s`, 66, 24);
  // Names of two points stand one below the other, in the order of the points.
  points.sort((a, b) => b.tflops - a.tflops);
  let line = -Infinity;
  for (const point of points) {
    line = Math.max(line + 14, y(point.tflops) + 4);
    context.fillStyle = "#b23b3b";
    context.fillRect(x(point.intensity) - 3, y(point.tflops) - 3, 7, 7);
    context.fillText(`${point.name}: ${point.tflops.toFixed(2)} TFLOP/s`, x(point.intensity) + 8,
      line);
  }
  if (!points.length) context.fillText("no matrix multiplication", width / 2, height / 2);
}

// What stands behind one span, from the tables of its stream.
function describe(track, at) {
  const index = track.index[at], stream = streams[track.stream];
  if (index >= stream.template.length) return { name: "ACT_TABLE_LOAD", waits: [], updates: [] };
  const template = data.streams[track.stream].templates[stream.template[index]];
  const [waits, updates] = data.streams[track.stream].semaphores[stream.semaphore[index]];
  return { ...template, index, waits, updates };
}

// By semaphore of a core, in order of time, the spans that give units to it and take them.
function eventsOf(core) {
  if (eventsOf[core]) return eventsOf[core];
  const found = new Map();
  for (const track of tracks) {
    if (track.core !== core) continue;
    const stream = streams[track.stream], pairs = data.streams[track.stream].semaphores;
    const templates = data.streams[track.stream].templates;
    for (let at = 0; at < track.index.length; at++) {
      const index = track.index[at];
      if (index >= stream.template.length) continue;
      const [waits, updates] = pairs[stream.semaphore[index]];
      const moves = templates[stream.template[index]].asynchronous;
      const note = (pair, kind, time) => {
        if (!found.has(pair[0])) found.set(pair[0], { given: [], taken: [] });
        found.get(pair[0])[kind].push({ time, amount: pair[1], track, at });
      };
      // A trigger waits, its transfer gives; other instructions do both.
      if (!moves || track.queue < 0) for (const p of waits) note(p, "taken", track.start[at]);
      if (!moves || track.queue >= 0)
        for (const p of updates) note(p, "given", track.start[at] + track.length[at]);
    }
  }
  for (const one of found.values()) for (const kind of ["given", "taken"])
    one[kind].sort((a, b) => a.time - b.time);
  return eventsOf[core] = found;
}

function semaphores() {
  if (semaphores.rows) return semaphores.rows;
  semaphores.rows = [];
  for (const core of new Set(tracks.map((track) => track.core)))
    for (const [number, events] of [...eventsOf(core)].sort((a, b) => a[0] - b[0]))
      semaphores.rows.push({
        name: `S[${number}] core ${core}`,
        given: { time: Float64Array.from(events.given, (e) => e.time) },
        taken: { time: Float64Array.from(events.taken, (e) => e.time) },
      });
  return semaphores.rows;
}

// Units are taken in the order in which they are given: arrows from those that gave what a span
// took, and to those that took what it gave.
function arrowsOf(track, at) {
  const found = [];
  for (const events of eventsOf(track.core).values()) {
    let given = 0, left = events.given.length ? events.given[0].amount : 0;
    for (const taker of events.taken) {
      let wanted = taker.amount;
      while (wanted > 0 && given < events.given.length) {
        const giver = events.given[given], here = Math.min(wanted, left);
        const isThis = (one) => one.track === track && one.at === at;
        if (isThis(taker) || isThis(giver)) found.push([giver, taker]);
        wanted -= here;
        left -= here;
        if (left === 0 && ++given < events.given.length) left = events.given[given].amount;
      }
    }
  }
  return found;
}

function select(track, at) {
  report.selected = { track, at };
  report.arrows = arrowsOf(track, at);
  const found = describe(track, at), start = track.start[at] * data.tick;
  const pairs = (list) => list.map(([number, amount]) => `S[${number}] ${amount}`).join(", ");
  const facts = [
    ["instruction", `${found.name} on ${track.name}`],
    ["time", `${start.toFixed(1)} ns, for ${(track.length[at] * data.tick).toFixed(1)} ns`],
    ["line", found.source ? `${found.source}  ${found.text}` : ""],
    ["operands", (found.operands || []).join("\n")],
    ["waits", pairs(found.waits)],
    ["updates", pairs(found.updates)],
    ["arrows", String(report.arrows.length)],
  ];
  const table = document.createElement("table");
  for (const [name, value] of facts.filter((fact) => fact[1])) {
    const row = table.insertRow();
    row.appendChild(document.createElement("th")).textContent = name;
    row.insertCell().textContent = value;
  }
  byId("details").replaceChildren(table);
  drawTimeline();
}

function zoom(factor, tick) {
  const [from, until] = report.view, whole = data.ticks;
  const span = Math.min(Math.max((until - from) * factor, 16), whole);
  const left = tick - (tick - from) / (until - from) * span;
  report.view = move(left, span);
  drawTimeline();
}

function move(left, span) {
  const from = Math.min(Math.max(left, 0), data.ticks - span);
  return [from, from + span];
}

function listen() {
  const canvas = byId("timeline");
  let grabbed = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, toTick(event.offsetX, canvas.clientWidth));
  }, { passive: false });
  canvas.addEventListener("mousedown", (event) => {
    grabbed = { x: event.offsetX, view: report.view, moved: false };
  });
  window.addEventListener("mousemove", (event) => {
    if (!grabbed || event.target !== canvas) return;
    const [from, until] = grabbed.view, span = until - from;
    const by = (event.offsetX - grabbed.x) / (canvas.clientWidth - LABEL) * span;
    grabbed.moved ||= Math.abs(event.offsetX - grabbed.x) > 3;
    report.view = move(from - by, span);
    drawTimeline();
  });
  window.addEventListener("mouseup", (event) => {
    if (grabbed && !grabbed.moved && event.target === canvas) pick(event.offsetX, event.offsetY);
    grabbed = null;
  });
  for (const [id, factor] of [["closer", 0.5], ["wider", 2], ["all", Infinity]])
    byId(id).addEventListener("click", () =>
      zoom(factor === Infinity ? 1e12 : factor, (report.view[0] + report.view[1]) / 2));
  byId("semaphores").addEventListener("change", drawTimeline);
  window.addEventListener("resize", draw);
}

function pick(x, y) {
  const track = tracks[Math.floor((y - AXIS) / ROW)];
  if (!track) return;
  const tick = toTick(x, byId("timeline").clientWidth);
  const slack = (report.view[1] - report.view[0]) / byId("timeline").clientWidth * 3;
  const at = before(track.start, tick + slack) - 1;
  if (at >= 0 && track.start[at] + track.length[at] >= tick - slack) select(track, at);
}

function draw() {
  drawTimeline();
  drawRoofline();
}

let data, tracks, streams;

async function open() {
  data = JSON.parse(byId("data").textContent);
  const buffer = await unpack(byId("columns").textContent.trim());
  streams = data.streams.map((stream) => ({
    template: columnsOf(buffer, stream.template), semaphore: columnsOf(buffer, stream.semaphore),
  }));
  tracks = data.tracks.map((track) => ({
    ...track, start: columnsOf(buffer, track.start), length: columnsOf(buffer, track.length),
    index: columnsOf(buffer, track.index),
  }));
  data.memories = data.memories.map((memory) => ({
    kind: memory.kind, core: memory.core, bytes: memory.bytes, used: memory.used,
    name: columnsOf(buffer, memory.label),
    begin: columnsOf(buffer, memory.begin), end: columnsOf(buffer, memory.end),
    offset: columnsOf(buffer, memory.offset), size: columnsOf(buffer, memory.size),
  }));
  report.view = [0, data.ticks];
  report.tracks = tracks;
  report.data = data;
  report.zoom = zoom;
  report.pick = pick;
  listen();
  draw();
  report.ready = true;
  document.documentElement.dataset.ready = "yes";
}

open();
