"use strict";

// Sorting: a click on the title of a column; rows without a value stay last.
function compare(kind, a, b) {
  return kind === "number" ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true });
}

function sortBy(button) {
  const head = button.closest("th");
  const heads = [...head.parentElement.children];
  const column = heads.indexOf(head);
  const kind = head.dataset.kind;
  const first = kind === "number" ? "descending" : "ascending";
  const other = first === "descending" ? "ascending" : "descending";
  const order = head.getAttribute("aria-sort") === first ? other : first;
  for (const each of heads) each.setAttribute("aria-sort", each === head ? order : "none");
  const body = head.closest("table").tBodies[0];
  const value = (row) => {
    const cell = row.children[column];
    return cell.dataset.value ?? cell.textContent;
  };
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...body.rows].sort((one, two) => {
    const a = value(one), b = value(two);
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * compare(kind, a, b);
  });
  body.append(...rows);
}

// Legends: a button shows and hides its lines; pointing at it makes the others fade.
function lines(button) {
  return button.closest(".charts").querySelectorAll(`[data-series="${button.dataset.toggle}"]`);
}

function toggle(button) {
  const shown = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(shown));
  for (const line of lines(button)) line.classList.toggle("off", !shown);
}

function point(button, on) {
  const charts = button.closest(".charts");
  charts.classList.toggle("pointing", on && button.getAttribute("aria-pressed") === "true");
  for (const line of charts.querySelectorAll("[data-series]")) line.classList.remove("pointed");
  if (on) for (const line of lines(button)) line.classList.add("pointed");
}

for (const button of document.querySelectorAll("th[aria-sort] button")) {
  button.addEventListener("click", () => sortBy(button));
}
for (const button of document.querySelectorAll("button[data-toggle]")) {
  button.addEventListener("click", () => toggle(button));
  for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["blur", false]]) {
    button.addEventListener(event, () => point(button, on));
  }
}
