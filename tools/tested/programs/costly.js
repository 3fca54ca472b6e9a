module.exports = Array.from({ length: 400 }, () => Buffer.alloc(20_000, 1));
