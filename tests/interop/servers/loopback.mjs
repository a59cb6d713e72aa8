// Loaded before a server that listens where it likes: it listens on the loopback interface, on a
// free port, and the URL is told on standard error.

import net from "node:net";

const { listen } = net.Server.prototype;

net.Server.prototype.listen = function (...given) {
  const ready = given.filter((argument) => typeof argument === "function");
  this.once("listening", () => console.error(`http://127.0.0.1:${this.address().port}`));
  return listen.call(this, { host: "127.0.0.1", port: 0 }, ...ready);
};
