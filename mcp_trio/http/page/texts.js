// Whatever a client, an upstream or a registry has chosen is put in as text, by `say` alone, and
// what would steer the page (marks that turn the direction of writing, invisible tags) is escaped.

const STEERING =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\u{e0000}-\u{e007f}\p{Cs}]/gu;

function shown(value) {
  if (value === null || value === undefined || value === "") return "–";
  return String(value).replace(STEERING, (mark) => `\\u{${mark.codePointAt(0).toString(16)}}`);
}

function say(element, value) {
  const text = shown(value);
  if (element.textContent !== text) element.textContent = text;
}

function mark(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) mark(element, name, value);
  element.append(...children);
  return element;
}

const place = (id) => document.getElementById(id);

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  const [days, hours, minutes] = [whole / 86400, (whole / 3600) % 24, (whole / 60) % 60].map(Math.floor);
  if (days) return `${days} d ${hours} h`;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}

const clock = (date) => date.toTimeString().slice(0, 8);

// A name that only one process has, among several: each says its number.
const within = (worker, name) => (worker === undefined ? String(name) : `${worker}/${name}`);
const named = (worker, name) => (worker === undefined ? name : `${name}, worker ${worker}`);

const many = (count, one, more = `${one}s`) => `${count} ${count === 1 ? one : more}`;

// Pairs of a name and a value, with a kind that colours it; the elements are used again.
function facts(list, pairs) {
  while (list.children.length > pairs.length) list.lastChild.remove();
  pairs.forEach(([name, value, kind], index) => {
    const row = list.children[index] ?? list.appendChild(make("div", {}, make("dt"), make("dd")));
    say(row.firstChild, name);
    say(row.lastChild, value);
    mark(row.lastChild, "data-kind", kind);
  });
}
