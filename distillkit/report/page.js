"use strict";
// Every table sorts by a click on its head and, with controls, filters; all of it is in the page.
const figures = JSON.parse(document.getElementById("figures").textContent);

function valueOf(cell) {
  const shown = cell.dataset.value ?? cell.textContent.trim();
  const number = Number(shown.replaceAll(",", ""));
  return shown === "" || Number.isNaN(number) ? shown : number;
}

function compare(a, b) {
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}

for (const table of document.querySelectorAll("table.sorted")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row.cells[column]), row]);
      rows.sort((a, b) => (up ? 1 : -1) * compare(a[0], b[0]));
      table.tBodies[0].append(...rows.map((pair) => pair[1]));
    });
  });
}

// A control with data-column filters by equality with the row's attribute, the search by its text.
const filters = {};
for (const form of document.querySelectorAll("form.controls[data-table]")) {
  const table = document.getElementById(form.dataset.table);
  const rows = [...table.tBodies[0].rows];
  const count = form.querySelector("output");
  const cell = { gold: null, said: null };
  function apply() {
    const sought = form.elements.sought.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = [...form.querySelectorAll("select")].every((select) => {
        const own = row.dataset[select.name];
        return select.value === "" || own === select.value || (select.value === "any" && own !== "all agree");
      });
      const inCell = cell.gold === null || (row.dataset.gold === cell.gold && row.dataset.said === cell.said);
      row.hidden = !(fits && inCell && (sought === "" || row.textContent.toLowerCase().includes(sought)));
      shown += row.hidden ? 0 : 1;
    }
    const only = cell.gold === null ? "" : `, label ${cell.gold}, student ${cell.said}`;
    count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows${only}`;
  }
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    cell.gold = cell.said = null;
    setTimeout(apply);
  });
  filters[form.dataset.table] = (split, gold, said) => {
    form.elements.sought.value = "";
    form.elements.kind.value = "";
    form.elements.split.value = split;
    Object.assign(cell, { gold, said });
    apply();
    form.scrollIntoView();
    form.elements.sought.focus({ preventScroll: true });
  };
  apply();
}

for (const button of document.querySelectorAll("button[data-gold]")) {
  const { split, gold, said } = button.dataset;
  button.addEventListener("click", () => filters.answers(split, gold, said));
}

const slider = document.getElementById("threshold");
if (slider) {
  const mark = document.querySelector("#coverage circle");
  const points = document.querySelector("#coverage .curve").getAttribute("points").split(" ");
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const move = () => {
    const at = figures.coverage[slider.value];
    const [x, y] = points[Math.min(slider.value, points.length - 1)].split(",");
    mark.setAttribute("cx", x);
    mark.setAttribute("cy", y);
    const right = at.coverage ? `${percent(at.accuracy)} of them right` : "none";
    const said = `confidence at least ${at.threshold.toFixed(2)}: the student answers ${percent(at.coverage)} of the rows, ${right}; ` +
      `with the teacher for the rest, ${percent(at.cascade)} of all are right`;
    document.getElementById("covered").textContent = said;
    slider.setAttribute("aria-valuetext", said);
  };
  slider.addEventListener("input", move);
  move();
}
