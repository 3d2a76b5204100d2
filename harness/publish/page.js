"use strict";
// Sorts and filters the tables, and shows kernels and their differences. Everything is inserted as text.
(() => {
  const data = JSON.parse(document.getElementById("texts").textContent);
  const text = (cell) => (cell && cell.colSpan === 1 ? cell.textContent.trim() : "");

  function compare(a, b) {
    const x = parseFloat(a), y = parseFloat(b);
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    if (!Number.isNaN(x) || !Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return a.localeCompare(b, "en");
  }

  function sort(table, head) {
    const up = head.getAttribute("aria-sort") !== "descending" && head.hasAttribute("aria-sort") ? -1 : 1;
    const column = [...head.parentNode.children].indexOf(head);
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up > 0 ? "ascending" : "descending");
    const body = table.tBodies[0];
    for (const sub of body.querySelectorAll("tr.sub")) sub.hidden = true; // no longer above its rows
    const rows = [...body.rows].filter((row) => !row.classList.contains("sub"));
    const empty = (row) => text(row.cells[column]) === "";
    rows.sort((a, b) => empty(a) - empty(b) || up * compare(text(a.cells[column]), text(b.cells[column])));
    body.append(...rows);
  }

  function filter(tools) {
    const table = document.getElementById(tools.dataset.table);
    const words = tools.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
    const word = tools.querySelector("select").value;
    let shown = 0, all = 0, sub = null, below = 0;
    const close = () => { if (sub) sub.hidden = below === 0 || table.querySelector("[aria-sort]") !== null; };
    for (const row of table.tBodies[0].rows) {
      if (row.classList.contains("sub")) { close(); sub = row; below = 0; continue; }
      const all_text = (row.dataset.case + " " + row.textContent).toLowerCase();
      row.hidden = !words.every((w) => all_text.includes(w)) || (word !== "" && row.dataset.word !== word);
      all += 1;
      if (!row.hidden) { shown += 1; below += 1; }
    }
    close();
    tools.querySelector("output").textContent = shown + " of " + all + " rows";
  }

  function lines(digest) {
    return (data.texts[digest] || []).flatMap(([first, count]) => data.lines.slice(first, first + count));
  }

  function piece(kind, content) {
    const span = document.createElement("span");
    span.className = kind;
    span.textContent = content + "\n";
    return span;
  }

  function difference(before, after) {
    const old = lines(before), fresh = lines(after), found = [], around = 3;
    const parts = data.diffs[before + ">" + after] || [];
    parts.forEach(([tag, i1, i2, j1, j2], n) => {
      if (tag === "-") for (const line of old.slice(i1, i2)) found.push(piece("minus", "- " + line));
      else if (tag === "+") for (const line of fresh.slice(j1, j2)) found.push(piece("plus", "+ " + line));
      else {
        const head = n === 0 ? 0 : around, tail = n === parts.length - 1 ? 0 : around, same = fresh.slice(j1, j2);
        if (same.length <= head + tail + 1) for (const line of same) found.push(piece("", "  " + line));
        else {
          for (const line of same.slice(0, head)) found.push(piece("", "  " + line));
          found.push(piece("cut", "@@ " + (same.length - head - tail) + " equal lines, up to line " + (j2 - tail) + " @@"));
          for (const line of same.slice(same.length - tail)) found.push(piece("", "  " + line));
        }
      }
    });
    return found;
  }

  function open(button) {
    const row = button.closest("tr"), dialog = document.getElementById("kernel");
    const diff = button.dataset.show === "diff";
    const digest = row.dataset.text, full = row.dataset.full;
    dialog.querySelector("h2").textContent = row.dataset.case + (diff ? ": what differs from full" : "");
    dialog.querySelector("p").textContent = "source " + digest.slice(0, 16) + (diff ? ", full " + full.slice(0, 16) : "");
    const pre = dialog.querySelector("pre");
    pre.replaceChildren(...(diff ? difference(full, digest) : lines(digest).map((line) => piece("", line))));
    dialog.showModal();
    pre.scrollTop = 0;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.show) open(button);
    else if (button.closest("thead")) sort(button.closest("table"), button.closest("th"));
    else if (button.closest("dialog")) button.closest("dialog").close();
  });
  for (const tools of document.querySelectorAll(".tools")) {
    tools.addEventListener("input", () => filter(tools));
    filter(tools);
  }
})();
