// The tree as a widget: a flat list of the rows that are to be seen, with their levels (WAI-ARIA's
// pattern of a tree view). Rows are known by their keys from one look to the next, so the focus
// and what is open stay where they are.

const MAX_ROWS = 400;

class Tree {
  constructor(list) {
    this.list = list;
    this.toggled = new Map(); // by key: what the user has opened or closed
    this.items = new Map(); // by key: the elements
    this.rows = [];
    this.current = null; // the key of the row that Tab leads to
    list.addEventListener("keydown", (event) => this.pressed(event));
    list.addEventListener("click", (event) => this.clicked(event));
    list.addEventListener("focusin", (event) => this.go(event.target.dataset.key, false));
  }

  // Shows the roots; returns how many rows there is no room for.
  show(roots) {
    this.roots = roots;
    const all = [];
    this.flatten(roots, 1, null, all);
    const before = this.rows;
    // The heads of everything are there, whatever there is no room for below them.
    let room = MAX_ROWS - roots.length;
    this.rows = all.filter((row) => row.level === 1 || room-- > 0);
    const keys = new Set(this.rows.map((row) => row.key));
    const focused = this.list.contains(document.activeElement);
    if (!keys.has(this.current)) this.current = this.nearest(before, keys);
    for (const [key, item] of this.items) {
      if (!keys.has(key)) {
        item.remove();
        this.items.delete(key);
      }
    }
    this.rows.forEach((row, index) => this.put(row, index));
    const current = this.items.get(this.current);
    if (focused && current && document.activeElement !== current) current.focus();
    return all.length - this.rows.length;
  }

  flatten(scopes, level, parent, rows) {
    scopes.forEach((each, index) => {
      const open = each.children.length > 0 && this.open(each);
      rows.push({ ...each, level, parent, open, size: scopes.length, position: index + 1 });
      if (open) this.flatten(each.children, level + 1, each.key, rows);
    });
  }

  open(each) {
    return this.toggled.get(each.key) ?? (each.kind === "session" || each.kind === "request" || each.key === "alone");
  }

  nearest(before, keys) {
    const at = before.findIndex((row) => row.key === this.current);
    const others = [...before.slice(at + 1), ...before.slice(0, Math.max(at, 0)).reverse()];
    return others.find((row) => keys.has(row.key))?.key ?? this.rows[0]?.key ?? null;
  }

  put(row, index) {
    let item = this.items.get(row.key);
    if (!item) {
      item = this.make(row);
      this.items.set(row.key, item);
    }
    if (this.list.children[index] !== item) this.list.insertBefore(item, this.list.children[index] ?? null);
    mark(item, "aria-level", row.level);
    mark(item, "aria-setsize", row.size);
    mark(item, "aria-posinset", row.position);
    mark(item, "aria-expanded", row.children.length ? String(row.open) : null);
    mark(item, "tabindex", row.key === this.current ? 0 : -1);
    item.style.setProperty("--level", row.level - 1);
    const [sign, , words] = item.children;
    const [name, told, flags] = words.children;
    say(sign, row.children.length ? (row.open ? "▾" : "▸") : "·");
    say(name, row.name);
    told.textContent = row.told.map(shown).join(" · ");
    const wanted = row.flags.join(" ");
    if (flags.dataset.flags !== wanted) {
      flags.dataset.flags = wanted;
      flags.replaceChildren(...row.flags.map((flag) => make("span", { class: "flag" }, flag)));
    }
  }

  make(row) {
    const id = `scope-${(this.made = (this.made ?? 0) + 1)}`;
    const name = make("bdi", { class: "name", id });
    const told = make("bdi", { class: "told", id: `${id}-told` });
    const flags = make("span", { id: `${id}-flags` });
    const item = make(
      "li",
      { role: "treeitem", "data-kind": row.kind, "aria-labelledby": `${id}-kind ${id} ${id}-flags`, "aria-describedby": `${id}-told` },
      make("span", { class: "sign", "aria-hidden": "true" }),
      make("span", { class: "kind", id: `${id}-kind` }, row.kind === "group" ? "" : row.kind),
      make("span", { class: "words" }, name, told, flags),
    );
    item.dataset.key = row.key;
    return item;
  }

  index() {
    return this.rows.findIndex((row) => row.key === this.current);
  }

  go(key, focus = true) {
    if (key === undefined || !this.items.has(key)) return;
    const before = this.items.get(this.current);
    if (before) mark(before, "tabindex", -1);
    this.current = key;
    mark(this.items.get(key), "tabindex", 0);
    if (focus) this.items.get(key).focus();
  }

  toggle(row, open = !row.open) {
    if (!row.children.length) return;
    this.toggled.set(row.key, open);
    this.show(this.roots);
  }

  clicked(event) {
    const row = this.rows.find((each) => each.key === event.target.closest("li")?.dataset.key);
    if (!row || String(document.getSelection())) return; // who selects text does not mean the row
    this.go(row.key);
    this.toggle(row);
  }

  pressed(event) {
    const row = this.rows[this.index()];
    if (!row || event.ctrlKey || event.altKey || event.metaKey) return;
    const at = this.index();
    const actions = {
      ArrowDown: () => this.go(this.rows[at + 1]?.key),
      ArrowUp: () => this.go(this.rows[at - 1]?.key),
      Home: () => this.go(this.rows[0].key),
      End: () => this.go(this.rows.at(-1).key),
      ArrowRight: () => (row.open ? this.go(this.rows[at + 1]?.key) : this.toggle(row, true)),
      ArrowLeft: () => (row.open ? this.toggle(row, false) : this.go(row.parent ?? undefined)),
      Enter: () => this.toggle(row),
      " ": () => this.toggle(row),
      "*": () => {
        this.rows.filter((each) => each.parent === row.parent).forEach((each) => this.toggled.set(each.key, true));
        this.show(this.roots);
      },
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}
