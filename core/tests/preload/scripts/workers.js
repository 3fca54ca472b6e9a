// usage: workers.js SCALE. Runs itself as worker thread, child process and http server; checks what each returns.
"use strict";
const assert = require("assert");
const childProcess = require("child_process");
const crypto = require("crypto");
const http = require("http");
const zlib = require("zlib");
const { promisify } = require("util");
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");

const checksum = buffer => crypto.createHash("sha256").update(buffer).digest("hex");

function workInThread({ number, bytes }) {
  const buffers = [];
  for (let i = 0; i < 300; i++) {
    buffers.push(Buffer.alloc(100 + (i * 7919) % 200000, i));
    if (i % 3 === 0) buffers.shift();
  }
  const sum = buffers.reduce((total, buffer) => total + buffer.length, 0);
  const large = new Uint8Array(bytes).fill(number);
  parentPort.postMessage({ sum, large }, [large.buffer]);
}

async function threads(scale) {
  for (let round = 0; round < 2 * scale; round++) {
    const results = await Promise.all(Array.from({ length: 6 }, (_, number) => new Promise((resolve, reject) => {
      const worker = new Worker(__filename, { workerData: { number, bytes: 5_000_000 } });
      worker.once("message", resolve).once("error", reject);
    })));
    results.forEach(({ sum, large }, number) => {
      assert.strictEqual(sum, results[0].sum);
      assert(large.length === 5_000_000 && large[0] === number && large[4_999_999] === number);
    });
  }
}

async function compression(scale) {
  const data = Buffer.concat(Array.from({ length: 4000 }, (_, i) => Buffer.from(`line ${i * i} `.repeat(i % 50))));
  const pack = [promisify(zlib.gzip), promisify(zlib.deflate), promisify(zlib.brotliCompress)];
  const unpack = [promisify(zlib.gunzip), promisify(zlib.inflate), promisify(zlib.brotliDecompress)];
  await Promise.all(Array.from({ length: 12 * scale }, async (_, i) => {
    const kind = i % 8 === 7 ? 2 : i % 2;
    assert((await unpack[kind](await pack[kind](data))).equals(data));
  }));
  const keys = await Promise.all(Array.from({ length: 8 * scale }, () =>
    promisify(crypto.scrypt)("word", "salt", 64, { N: 4096 })));
  assert(keys.every(key => key.equals(keys[0])));
}

async function children(scale) {
  const run = promisify(childProcess.execFile);
  for (let round = 0; round < 3 * scale; round++) {
    const outputs = await Promise.all(Array.from({ length: 4 }, (_, i) =>
      run(process.execPath, ["-e", `console.log("x".repeat(${100000 * (i + 1)}).length)`])));
    outputs.forEach(({ stdout }, i) => assert.strictEqual(stdout, `${100000 * (i + 1)}\n`));
  }
  const child = childProcess.fork(__filename, ["child"]);
  const answer = await new Promise(resolve => { child.once("message", resolve); child.send("y".repeat(3_000_000)); });
  assert.strictEqual(answer, checksum("y".repeat(3_000_000)));
  assert.strictEqual(await new Promise(resolve => child.once("exit", resolve)), 0);
}

async function server(scale) {
  const listening = http.createServer((request, response) => {
    const pieces = [];
    request.on("data", piece => pieces.push(piece)).on("end", () => response.end(checksum(Buffer.concat(pieces))));
  });
  await new Promise(resolve => listening.listen(0, "127.0.0.1", resolve));
  const post = body => new Promise((resolve, reject) => {
    const request = http.request({ port: listening.address().port, host: "127.0.0.1", method: "POST" }, response => {
      let text = "";
      response.on("data", piece => { text += piece; }).on("end", () => resolve(text));
    });
    request.once("error", reject).end(body);
  });
  for (let round = 0; round < 10 * scale; round++) {
    const bodies = Array.from({ length: 10 }, (_, i) => Buffer.alloc(1 + 40_000 * i, `${round}.${i} `));
    const answers = await Promise.all(bodies.map(post));
    bodies.forEach((body, i) => assert.strictEqual(answers[i], checksum(body)));
  }
  listening.closeAllConnections?.();
  listening.close();
}

function heap(scale) {
  const table = new Map();
  for (let i = 0; i < 300_000 * scale; i++) {
    table.set(i % 50_000, { number: i, text: `text ${i}`, list: [i, i + 1] });
    if (i % 1000 === 0) new ArrayBuffer(1_000_000);
  }
  const copy = JSON.parse(JSON.stringify([...table]));
  assert(copy.length === 50_000 && copy.every(([key, { number }]) => number % 50_000 === key));
}

async function main(scale) {
  heap(scale);
  await threads(scale);
  await compression(scale);
  await children(scale);
  await server(scale);
  console.log("done");
}

function answerOnce() {
  process.once("message", text => process.send(checksum(text), () => process.disconnect()));
}

if (!isMainThread) workInThread(workerData);
else if (process.argv[2] === "child") answerOnce();
else main(Number(process.argv[2])).catch(error => { console.error(error); process.exit(1); });
