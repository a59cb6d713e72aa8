// Tables: at first some rows, all of them on demand. Roles are spelled out, because a table that
// is laid out as cards on a phone must stay a table for who hears it.

class Table {
  constructor(name, { label, columns, none, first = 10, cards = true }) {
    this.columns = columns;
    this.first = first;
    this.all = false;
    const heads = columns.map((column) => {
      const head = make("th", { scope: "col", role: "columnheader" });
      say(head, column);
      return head;
    });
    this.body = make("tbody", { role: "rowgroup" });
    this.table = make(
      "table",
      { role: "table", class: cards ? "cards" : null, "aria-label": label },
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads)),
      this.body,
    );
    this.none = make("p", { class: "none" });
    say(this.none, none);
    this.more = make("button", { type: "button", hidden: "" });
    this.more.addEventListener("click", () => {
      this.all = !this.all;
      this.show(this.rows, this.total);
    });
    document.querySelector(`[data-table="${name}"]`).append(this.table, this.none, this.more);
  }

  // `total` counts also rows that the server left out.
  show(rows, total = rows.length) {
    this.rows = rows;
    this.total = total;
    const visible = this.all ? rows : rows.slice(0, this.first);
    this.table.hidden = rows.length === 0;
    this.none.hidden = rows.length !== 0;
    while (this.body.children.length > visible.length) this.body.lastChild.remove();
    visible.forEach((cells, index) => this.fill(this.body.children[index] ?? this.add(), cells));
    this.more.hidden = rows.length <= this.first;
    mark(this.more, "aria-expanded", String(this.all));
    const left = total > rows.length ? ` of ${total}` : "";
    say(this.more, this.all ? `Show ${this.first}` : `Show all ${rows.length}${left}`);
  }

  add() {
    const cells = this.columns.map((column) =>
      make("td", { role: "cell", "data-label": column }, make("bdi")),
    );
    return this.body.appendChild(make("tr", { role: "row" }, ...cells));
  }

  fill(row, cells) {
    cells.forEach((value, index) => {
      say(row.children[index].firstChild, value);
      mark(row.children[index], "data-empty", value === null || value === undefined ? "" : null);
    });
  }
}
