// Drawings. Each says in words what it shows; the table beside it has the numbers.

const SVG = "http://www.w3.org/2000/svg";

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) mark(element, name, value);
  element.append(...children);
  return element;
}

// One bar for each second, the latest at the right. Each strip has a scale of its own: a few
// failures would not be seen beside a thousand successes.
class Strip {
  constructor(parent, name, kind) {
    this.name = name;
    this.bars = draw("path", { class: "bar", "data-kind": kind });
    this.svg = draw("svg", { class: "strip", role: "img", preserveAspectRatio: "none" }, this.bars);
    this.label = make("span");
    this.peak = make("span");
    say(this.label, name);
    parent.append(make("p", { class: "strip-name" }, this.label, this.peak), this.svg);
  }

  show(values, total) {
    const top = Math.max(...values, 1);
    const peak = Math.max(...values, 0);
    mark(this.svg, "viewBox", `0 0 ${values.length} 100`);
    const bars = values.map((value, second) => {
      const height = (value / top) * 96;
      return value ? `M${second} 100v${-height.toFixed(1)}h1v${height.toFixed(1)}z` : "";
    });
    mark(this.bars, "d", bars.join(""));
    say(this.peak, `peak ${peak}/s, ${total} since the start`);
    const sum = values.reduce((left, right) => left + right, 0);
    mark(this.svg, "aria-label", `${this.name}: ${sum} in ${values.length} seconds, at most ${peak} in one`);
  }
}

// With spaces at which no line is broken.
const milliseconds = (value) => (value < 1000 ? `${value}\u00a0ms` : `${value / 1000}\u00a0s`);

function classes(bounds) {
  return [...bounds.map((bound) => `≤\u00a0${milliseconds(bound)}`), `>\u00a0${milliseconds(bounds.at(-1))}`];
}

// The class below which a part of all is; null if there is nothing.
function quantile({ bounds, counts }, part) {
  const sum = counts.reduce((left, right) => left + right, 0);
  let reached = 0;
  const index = counts.findIndex((count) => (reached += count) >= sum * part);
  return sum ? classes(bounds)[index] : null;
}

const ROW = 20;

class Histogram {
  constructor(parent, kind) {
    this.kind = kind;
    this.svg = draw("svg", { role: "img" });
    this.note = make("p", { class: "chart-note" });
    parent.append(this.svg, this.note);
    this.rows = [];
  }

  show(data, seconds) {
    const names = classes(data.bounds);
    if (this.rows.length !== names.length) this.lay(names);
    const top = Math.max(...data.counts, 1);
    this.rows.forEach(({ name, bar, count }, index) => {
      const value = data.counts[index];
      const width = (value / top) * 55;
      say(name, names[index]);
      mark(bar, "width", `${value ? Math.max(width, 0.5) : 0}%`);
      mark(count, "x", `${28 + width}%`);
      say(count, value);
    });
    const sum = data.counts.reduce((left, right) => left + right, 0);
    const told = sum
      ? `${many(sum, "request")}: half ${quantile(data, 0.5)}, 95\u00a0% ${quantile(data, 0.95)}`
      : "none";
    say(this.note, `Last ${Math.round(seconds / 60)} minutes, ${told}`);
    mark(this.svg, "aria-label", this.note.textContent);
  }

  lay(names) {
    mark(this.svg, "height", names.length * ROW);
    this.rows = names.map((_, index) => ({
      name: draw("text", { x: "24%", y: index * ROW + 15, "text-anchor": "end" }),
      bar: draw("rect", { class: "bar", "data-kind": this.kind, x: "26%", y: index * ROW + 3, height: ROW - 6 }),
      count: draw("text", { y: index * ROW + 15 }),
    }));
    const axis = draw("line", { class: "axis", x1: "26%", x2: "26%", y1: 0, y2: names.length * ROW });
    this.svg.replaceChildren(axis, ...this.rows.flatMap((row) => [row.name, row.bar, row.count]));
  }
}
