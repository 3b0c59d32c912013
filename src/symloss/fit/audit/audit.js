"use strict";

const review = document.querySelector(".review");
const suspects = [...document.querySelectorAll(".suspect")];
const choices = Object.fromEntries([...document.querySelectorAll(".tools select")].map((each) => [each.name, each]));
const storage = `symloss-audit:${review.dataset.key}`;
let current = null;

// Decisions: "accepted" or "rejected", by the index of the example. A page may be opened where nothing can be stored.
let decisions = {};
try {
  decisions = Object(JSON.parse(localStorage.getItem(storage) ?? "{}"));
} catch {
  decisions = {};
}

function remember() {
  try {
    localStorage.setItem(storage, JSON.stringify(decisions));
  } catch {
    // They stay on the page.
  }
}

function decide(suspect, decision) {
  const index = suspect.dataset.index;
  if (decision === undefined) delete decisions[index];
  else decisions[index] = decision;
  mark(suspect);
}

function mark(suspect) {
  const decision = decisions[suspect.dataset.index];
  for (const state of ["accepted", "rejected"]) suspect.classList.toggle(state, decision === state);
  for (const button of suspect.querySelectorAll("[data-decide]")) {
    button.setAttribute("aria-pressed", String(button.dataset.decide === decision));
  }
}

// Filters: by a class on either side, by a pair, by the decision.
function fits(suspect) {
  const { given, suggested, index } = suspect.dataset;
  const { class: one, pair, state } = choices;
  return (one.value === "" || one.value === given || one.value === suggested)
    && (pair.value === "" || pair.value === `${given},${suggested}`)
    && (state.value === "" || state.value === (decisions[index] ?? "undecided"));
}

function shown() {
  return suspects.filter((each) => !each.hidden);
}

function refresh() {
  for (const each of suspects) each.hidden = !fits(each);
  review.querySelector(".nothing").hidden = shown().length > 0;
  const count = (state) => suspects.filter((each) => decisions[each.dataset.index] === state).length;
  const accepted = count("accepted"), rejected = count("rejected");
  review.querySelector(".counts").textContent =
    `${shown().length} shown; ${accepted} accepted, ${rejected} rejected, ${suspects.length - accepted - rejected} undecided`;
  for (const cell of document.querySelectorAll(".matrix .heat g[data-row]")) {
    cell.classList.toggle("chosen", choices.pair.value === `${cell.dataset.row},${cell.dataset.column}`);
  }
}

function choosePair(cell) {
  const pair = `${cell.dataset.row},${cell.dataset.column}`;
  if (![...choices.pair.options].some((option) => option.value === pair)) return;
  choices.class.value = choices.state.value = "";
  choices.pair.value = choices.pair.value === pair ? "" : pair;
  refresh();
  if (choices.pair.value !== "") review.scrollIntoView();
}

// The keyboard.
function select(suspect) {
  if (suspect === undefined) return;
  if (current !== null) current.classList.remove("current");
  current = suspect;
  current.classList.add("current");
  current.focus({ preventScroll: true });
  current.scrollIntoView({ block: "nearest" });
}

function move(step) {
  const visible = shown();
  const here = visible.indexOf(current);
  if (here >= 0) select(visible[here + step]);
  else select(visible[0]);
}

function judge(decision) {
  if (current === null || current.hidden) {
    move(1);
    return;
  }
  const visible = shown();
  const following = visible[visible.indexOf(current) + 1];
  decide(current, decision);
  remember();
  refresh();
  if (decision !== undefined) select(following);
}

const KEYS = {
  j: () => move(1), ArrowRight: () => move(1), ArrowDown: () => move(1),
  k: () => move(-1), ArrowLeft: () => move(-1), ArrowUp: () => move(-1),
  a: () => judge("accepted"), r: () => judge("rejected"), u: () => judge(undefined),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
  const act = KEYS[event.key];
  if (act === undefined || suspects.length === 0) return;
  event.preventDefault();
  act();
});

// The CSV. Text that a spreadsheet would take for a formula is quoted, as in every table of symloss.
function harmless(text) {
  if (/^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/.test(text)) return text;
  return /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(text) || /^[\t\r\n]/.test(text) ? `'${text}` : text;
}

function cell(text) {
  const safe = harmless(text);
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function table() {
  const names = ["index", "row", "file"].filter((name) => suspects[0].dataset[name] !== undefined);
  const lines = [[...names, "given_label", "corrected_label", "decision"]];
  for (const each of suspects) {
    const decision = decisions[each.dataset.index];
    if (decision === undefined) continue;
    const corrected = decision === "accepted" ? each.dataset.to : each.dataset.from;
    lines.push([...names.map((name) => each.dataset[name]), each.dataset.from, corrected, decision]);
  }
  return lines.map((line) => line.map(cell).join(",") + "\n").join("");
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([table()], { type: "text/csv" }));
  link.download = "corrected.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function allShown(decision) {
  for (const each of shown()) decide(each, decision);
  remember();
  refresh();
}

const ACTS = { "accept-all": () => allShown("accepted"), clear: () => allShown(undefined), download };

for (const select of Object.values(choices)) select.addEventListener("change", refresh);
for (const cell of document.querySelectorAll(".matrix .heat g[data-row]")) cell.addEventListener("click", () => choosePair(cell));
for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", ACTS[button.dataset.act]);
for (const each of suspects) {
  for (const picture of each.querySelectorAll("img")) {
    const smooth = () => picture.classList.toggle("large", picture.naturalWidth > 48);
    if (picture.complete) smooth();
    else picture.addEventListener("load", smooth);
  }
  for (const button of each.querySelectorAll("[data-decide]")) {
    button.addEventListener("click", () => {
      const same = decisions[each.dataset.index] === button.dataset.decide;
      select(each);
      decide(each, same ? undefined : button.dataset.decide);
      remember();
      refresh();
    });
  }
  mark(each);
}
if (suspects.length > 0) refresh();
