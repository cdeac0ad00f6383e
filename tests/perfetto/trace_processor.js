// Loads one trace into Perfetto's own trace processor, under node, and answers SQL queries with JSON.
//
//   node trace_processor.js ENGINE_FOLDER TRACE < queries.json > tables.json
//
// ENGINE_FOLDER holds a build of the Perfetto UI (engine_bundle.js and trace_processor.wasm). The bundle is written for a
// web worker, so it gets a context that looks like one: it reads the engine with XMLHttpRequest, takes a message port in
// its first message, and speaks protobuf over that port (perfetto/trace_processor/trace_processor.proto: a stream of
// TraceProcessorRpc messages, each as field 1). In and out: a list of SQL texts; a list of lists of rows.
'use strict';

const fs = require('fs');
const path = require('path');
const vm = require('vm');

const METHOD = {append: 1, finalize: 2, query: 3};
const MEGABYTES = 16 * 1024 * 1024;

// ---- protobuf: just what the engine's messages need

function varint(number) {
  const bytes = [];
  for (let rest = BigInt(number); ; rest >>= 7n) {
    if (rest < 128n) return Buffer.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}

const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);

class Reader {
  constructor(buffer) {
    this.buffer = buffer;
    this.at = 0;
  }

  varint() {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.buffer[this.at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, value);
    }
  }

  slice(length) {
    this.at += length;
    return this.buffer.subarray(this.at - length, this.at);
  }

  * fields() {
    while (this.at < this.buffer.length) {
      const tag = Number(this.varint());
      const read = {0: () => this.varint(), 1: () => this.slice(8), 2: () => this.slice(Number(this.varint())),
        5: () => this.slice(4)}[tag & 7];
      yield [tag >> 3, read()];
    }
  }

  * varints() {
    while (this.at < this.buffer.length) yield this.varint();
  }
}

function collect(message) {
  const fields = new Map();
  for (const [field, value] of new Reader(message).fields()) {
    if (!fields.has(field)) fields.set(field, []);
    fields.get(field).push(value);
  }
  return fields;
}

// ---- the engine

class Engine {
  constructor(folder) {
    this.replies = [];
    this.sequence = 0;
    this.worker = this.context(folder);
    vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), this.worker);
    this.foreignArray = vm.runInContext('(length) => new Uint8Array(length)', this.worker);
    this.port = {postMessage: (reply) => this.replies.push(Buffer.from(reply))};
  }

  context(folder) {
    class Request {
      open(method, url) {
        this.file = path.join(folder, path.basename(String(url)));
      }

      send() {
        const content = fs.readFileSync(this.file);
        this.response = content.buffer.slice(content.byteOffset, content.byteOffset + content.length);
      }
    }
    const quiet = () => {};
    const scope = {
      XMLHttpRequest: Request, WorkerGlobalScope: quiet, location: {href: 'http://localhost/'},
      console: {log: quiet, warn: quiet, debug: quiet, assert: quiet, error: console.error},
      TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout, queueMicrotask,
    };
    scope.self = scope.globalThis = scope;
    return vm.createContext(scope);
  }

  async start() {
    const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    while (typeof this.worker.onmessage !== 'function') await pause(5);
    this.worker.onmessage({data: this.port});
    while (typeof this.port.onmessage !== 'function') await pause(5);
  }

  call(method, ...parts) {
    const rpc = bytes(1, Buffer.concat([number(1, this.sequence++), number(2, method), ...parts]));
    const data = this.foreignArray(rpc.length);
    data.set(rpc);
    this.replies = [];
    this.port.onmessage({data});
    return (collect(Buffer.concat(this.replies)).get(1) || []).map((reply) => {
      const fields = collect(reply);
      if (fields.has(5)) throw new Error(String(fields.get(5)[0]));
      return fields;
    });
  }

  load(file) {
    const handle = fs.openSync(file, 'r');
    const chunk = Buffer.alloc(MEGABYTES);
    for (let n; (n = fs.readSync(handle, chunk, 0, chunk.length, null)) > 0;) {
      for (const reply of this.call(METHOD.append, bytes(101, chunk.subarray(0, n)))) {
        const error = collect((reply.get(201) || [Buffer.alloc(0)])[0]).get(2);
        if (error && error[0].length) throw new Error(`${file}: ${error[0]}`);
      }
    }
    this.call(METHOD.finalize);
  }

  query(sql) {
    let columns = 0;
    const cells = [];
    for (const reply of this.call(METHOD.query, bytes(103, bytes(1, Buffer.from(sql))))) {
      const result = collect((reply.get(203) || [Buffer.alloc(0)])[0]);
      columns += (result.get(1) || []).length;
      if (result.has(2) && result.get(2)[0].length) throw new Error(`${sql}: ${result.get(2)[0]}`);
      for (const batch of result.get(3) || []) cells.push(...this.cells(collect(batch)));
    }
    return Array.from({length: columns ? cells.length / columns : 0}, (_, row) => cells.slice(row * columns, (row + 1) * columns));
  }

  // A batch holds the type of each cell, and the values of each type one after the other.
  * cells(batch) {
    const all = (field) => Buffer.concat(batch.get(field) || []);
    const integers = new Reader(all(2)).varints();
    const floats = all(3);
    const texts = all(5).toString().split('\0');
    let nFloats = 0;
    let nTexts = 0;
    for (const type of new Reader(all(1)).varints()) {
      if (type === 1n) yield null;
      else if (type === 2n) yield integers.next().value;
      else if (type === 3n) yield floats.readDoubleLE(8 * nFloats++);
      else if (type === 4n) yield texts[nTexts++];
      else throw new Error(`cells of type ${type} are not expected`);
    }
  }
}

// Integers go out as they are: JSON has no limit on digits, Python neither.
function json(value) {
  if (typeof value === 'bigint') return String(value);
  return Array.isArray(value) ? `[${value.map(json).join(',')}]` : JSON.stringify(value);
}

async function main([folder, trace]) {
  const queries = JSON.parse(fs.readFileSync(0, 'utf8'));
  const engine = new Engine(folder);
  await engine.start();
  engine.load(trace);
  process.stdout.write(json(queries.map((sql) => engine.query(sql))));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(String(error));
  process.exit(1);
});
