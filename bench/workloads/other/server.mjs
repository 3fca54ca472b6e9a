// What a Node server does that goes through malloc, for docs/how-to/other-languages.md: request bodies in Buffers, gzip and
// hashes in libuv's threads; and JSON objects, which are V8's own. Seeded; the same work each time, then quiet for 3 s.
//
//   node bench/workloads/other/server.mjs [REQUESTS]
import { createHash } from "node:crypto";
import { promisify } from "node:util";
import { gunzip, gzip } from "node:zlib";
import { setTimeout as wait } from "node:timers/promises";

const requests = Number(process.argv[2] ?? 4000);
const clients = 32;
const kept = new Array(300); // a cache of bodies, from which random ones leave
let seed = 1;
const random = (limit) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % limit;
let next = 0;
let sum = 0;

async function client() {
  while (next++ < requests) {
    const rows = Array.from({ length: 20 + random(400) }, (_, id) => ({ id, name: `row ${random(1e6)}`, price: random(1e5) }));
    const body = Buffer.from(JSON.stringify(rows));
    const packed = await promisify(gzip)(body);
    if (random(3) === 0) kept[random(kept.length)] = Buffer.from(body);
    const unpacked = await promisify(gunzip)(packed);
    sum += createHash("sha256").update(unpacked).digest()[0] + JSON.parse(unpacked).length;
  }
}

await Promise.all(Array.from({ length: clients }, client));
await wait(3000);
console.log(`snug-metric: sum=${sum}`);
