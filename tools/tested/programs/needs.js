const costly = require("./costly");

console.log(costly.length);
