const kept = [];

function keep() {
  kept.push(Buffer.alloc(100_000, 1));
}

console.log("ready");
setInterval(keep, 20);
