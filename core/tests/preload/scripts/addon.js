// usage: node --expose-gc addon.js ADDON SCALE. Uses a native addon on the main thread and in workers.
"use strict";
const assert = require("assert");
const { Worker, isMainThread, workerData } = require("worker_threads");

const { path, scale } = workerData || { path: process.argv[2], scale: Number(process.argv[3]) };
const addon = require(path);

async function work() {
  const kept = [];
  for (let i = 1; i <= 2000 * scale; i++) {
    const bytes = 1 + (i * 6151) % 90000;
    const buffer = addon.buffer(bytes, i % 256);
    assert(buffer.length === bytes && buffer[0] === i % 256 && buffer[bytes - 1] === i % 256);
    kept.push(buffer);
    if (kept.length > 100) kept.shift();
    if (i % 500 === 0) {
      global.gc();
      await new Promise(setImmediate); // finalizers run between tasks
    }
  }
  const rounds = Array.from({ length: 12 }, (_, n) => 1000 * scale + n);
  assert.deepStrictEqual(await Promise.all(rounds.map(addon.churn)), rounds);
}

async function main() {
  await work();
  await Promise.all(Array.from({ length: 3 }, () => new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: { path, scale } });
    worker.once("exit", code => (code ? reject(new Error(`worker ended with ${code}`)) : resolve()));
    worker.once("error", reject);
  })));
  console.log("done");
}

(isMainThread ? main() : work()).catch(error => {
  console.error(error);
  process.exit(1);
});
