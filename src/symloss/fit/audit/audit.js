// The list, its filters, the keyboard and the dialogs.
const find = (selector) => document.querySelector(selector);
const list = find(".suspects"), bar = find(".bar"), zoom = find(".zoom"), picker = find(".picker"), question = find(".question");
const inputs = Object.fromEntries([...document.querySelectorAll(".filters [name]")].map((each) => [each.name, each]));
const FEW = 10; // with so many classes a digit is a class
const PAIRS = 600, OFFERED = 200, LISTED = 1e5; // pairs to choose from, classes in the picker, labels that fit into a page
const SHOWN = ["undecided", ...DECISIONS, "conflict"];
let listed = []; // the places that fit the filters, in the order shown
let current = null; // the place that keys decide about
let columns = 1, rowHeight = 1;
const cards = new Map(); // those drawn, by place
const places = [...Array(SIZE).keys()];

// Filters.
let texts = null;

function searched(place) {
  texts ??= places.map((each) =>
    [data.name[each], data.classes[data.given[each]], data.classes[data.suggested[each]], ...data.cells[each]].join("\n").toLowerCase());
  return texts[place];
}

function fits(place, words) {
  const given = data.given[place], suggested = data.suggested[place];
  const { class: one, pair, state } = inputs;
  return (one.value === "" || Number(one.value) === given || Number(one.value) === suggested)
    && (pair.value === "" || pair.value === `${given},${suggested}`)
    && (state.value === "" || state.value === states[place])
    && words.every((word) => searched(place).includes(word));
}

const orders = { suspicion: places };

function ordered() {
  const collator = new Intl.Collator(undefined, { numeric: true });
  const makers = {
    class: () => places.toSorted((a, b) => data.given[a] - data.given[b] || data.suggested[a] - data.suggested[b]),
    name: () => places.toSorted((a, b) => collator.compare(data.name[a], data.name[b])),
  };
  return orders[inputs.sort.value] ??= makers[inputs.sort.value]();
}

function filter() {
  const words = inputs.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  listed = ordered().filter((place) => fits(place, words)).slice(0, LISTED);
}

// After a change of filters; the list begins at its top.
function filtered() {
  refresh();
  const top = list.getBoundingClientRect().top - covered();
  if (top < 0) scrollBy({ top, behavior: "instant" });
}

function refresh() {
  filter();
  find(".nothing").hidden = listed.length > 0;
  measure();
  for (const each of cards.values()) mark(each);
  draw();
  count();
  showPeople();
  if (zoom.open) enlarge();
  for (const each of document.querySelectorAll(".matrix .heat g[data-row]")) {
    each.classList.toggle("chosen", inputs.pair.value === `${each.dataset.row},${each.dataset.column}`);
  }
  find("[data-act=undo]").disabled = past.length === 0;
  find("[data-act=redo]").disabled = future.length === 0;
}

function count() {
  const counts = Object.fromEntries(SHOWN.map((state) => [state, 0]));
  for (const state of states) counts[state] += 1;
  const decided = SIZE - counts.undecided - counts.conflict;
  const parts = SHOWN.slice(1).filter((state) => counts[state]).map((state) => `${counts[state].toLocaleString("en")} ${state === "conflict" ? "in conflict" : state}`);
  find(".counts").textContent = `${listed.length.toLocaleString("en")} shown; ${decided.toLocaleString("en")} of `
    + `${SIZE.toLocaleString("en")} decided${parts.length ? `: ${parts.join(", ")}` : ""}`;
  const progress = find(".progress");
  progress.setAttribute("aria-valuemax", SIZE);
  progress.setAttribute("aria-valuenow", decided);
  progress.replaceChildren(...SHOWN.slice(1).map((state) => {
    const part = element("span", state);
    part.style.width = `${100 * counts[state] / SIZE}%`;
    return part;
  }));
}

function showPeople() {
  list.classList.toggle("team", people.size > 1);
  find(".people").replaceChildren(...[...people].filter(([person]) => person !== ME).map(([person, made]) => {
    const remove = button("", "✕", { person });
    remove.title = `Remove the decisions of ${person}`;
    return element("span", "", `${person}: ${made.size.toLocaleString("en")} decisions`, remove);
  }));
}

// Only the cards near the window are drawn. All are equally high, so that the place of each is known.
function measure() {
  const style = getComputedStyle(list);
  columns = style.gridTemplateColumns.split(" ").length;
  rowHeight = parseFloat(style.gridAutoRows) + parseFloat(style.rowGap);
  list.style.height = `${Math.ceil(listed.length / columns) * rowHeight}px`;
}

function draw() {
  const top = list.getBoundingClientRect().top, near = innerHeight / 2;
  const first = Math.max(0, Math.floor((-top - near) / rowHeight));
  const wanted = listed.slice(first * columns, Math.ceil((innerHeight - top + near) / rowHeight) * columns);
  list.style.paddingTop = `${first * rowHeight}px`;
  if (wanted.length === list.children.length && wanted.every((place, n) => Number(list.children[n].dataset.place) === place)) return;
  const focused = document.activeElement;
  const drawn = wanted.map((place) => cards.get(place) ?? card(place));
  cards.clear();
  drawn.forEach((each, n) => {
    cards.set(wanted[n], each);
    const about = { role: "listitem", "aria-setsize": listed.length, "aria-posinset": first * columns + n + 1 };
    for (const [name, value] of Object.entries(about)) each.setAttribute(name, value);
    each.classList.toggle("current", wanted[n] === current);
  });
  list.replaceChildren(...drawn);
  if (list.contains(focused)) focused.focus({ preventScroll: true });
}

// The height of the bar that covers the top of the window.
function covered() {
  return Math.max(0, ...[bar, find(".strip")].filter((each) => getComputedStyle(each).position === "sticky").map((each) => each.offsetHeight));
}

function reveal(place) {
  const row = Math.floor(listed.indexOf(place) / columns);
  const top = list.getBoundingClientRect().top + row * rowHeight - covered() - 8, bottom = top + covered() + 8 + rowHeight - innerHeight;
  if (top < 0) scrollBy({ top, behavior: "instant" });
  else if (bottom > 0) scrollBy({ top: Math.min(bottom, top), behavior: "instant" });
  draw();
}

function select(place) {
  if (place === undefined) return;
  current = place;
  reveal(place);
  for (const [each, drawn] of cards) drawn.classList.toggle("current", each === place);
  if (zoom.open) enlarge();
  else cards.get(place)?.focus({ preventScroll: true });
}

function move(step) {
  const here = listed.indexOf(current);
  select(here < 0 ? listed[0] : listed[Math.min(Math.max(here + step, 0), listed.length - 1)]);
}

// Decide about the current label, and go on to the next one.
function judge(decision, label) {
  const here = listed.indexOf(current);
  if (here < 0) {
    move(0);
    return;
  }
  const following = listed[here + 1];
  decide(`${decision} ${data.name[current]}`, [current], decision, label);
  refresh();
  select(following ?? (listed.includes(current) ? current : listed.at(-1)));
}

// A second click on a button takes the decision back, unless it settles a conflict.
function press(place, decision) {
  const same = mine(place)?.decision === decision && states[place] !== "conflict";
  select(place);
  decide(same ? `cleared ${data.name[place]}` : `${decision} ${data.name[place]}`, [place], same ? undefined : decision);
  refresh();
}

function again(step, done) {
  if (step === undefined) return;
  refresh();
  say(`${done}: ${step.what}`);
  const [first] = step.changes;
  if (step.changes.length === 1 && listed.includes(first.place)) select(first.place);
}

let silent = null;

function say(text) {
  const status = find(".status");
  status.textContent = text;
  clearTimeout(silent);
  silent = setTimeout(() => { status.textContent = ""; }, 8000);
}

// Questions.
let answered = () => {};

function answer(yes) {
  answered(yes);
  question.close();
}

function ask(text, yes, { name = null, no = "Cancel" } = {}) {
  find("#question").textContent = text;
  const field = question.querySelector("input"), [cancel, main] = question.querySelectorAll("button");
  field.parentElement.hidden = name === null;
  field.value = name ?? "";
  cancel.textContent = no;
  cancel.hidden = no === "";
  main.textContent = yes;
  question.showModal();
  (name === null ? main : field).focus();
  return new Promise((resolve) => { answered = resolve; });
}

const plural = (number, one) => `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;

async function allShown(decision) {
  const about = [...listed], own = about.filter((place) => mine(place));
  const replaced = own.filter((place) => mine(place).decision !== decision).length;
  const nothing = decision === undefined ? own.length === 0 : about.length === 0;
  if (nothing) {
    say(decision === undefined ? "None of the labels shown has a decision of yours." : "No label is shown.");
    return;
  }
  const what = decision === undefined
    ? `Clear your decisions about ${plural(own.length, "label")}?`
    : `Accept the suggestions for ${plural(about.length, "label")}?`
      + (replaced ? ` This replaces ${plural(replaced, "other decision")} of yours.` : "");
  if (!await ask(what, decision === undefined ? `Clear ${own.length}` : `Accept ${about.length}`)) return;
  decide(decision === undefined ? `cleared ${own.length}` : `accepted ${about.length}`, about, decision);
  refresh();
}

// The name is asked for once, when it is first needed.
let asked = false;

async function annotator() {
  const field = inputs.annotator;
  if (field.value.trim() === "" && !asked) {
    const told = await ask("Decisions are signed, so that several people can merge theirs.", "Continue", { name: "", no: "Without a name" });
    asked = true;
    if (told) field.value = question.querySelector("input").value.trim();
    storeName(field.value);
  }
  return field.value.trim();
}

async function download() {
  const name = await annotator(), link = element("a");
  link.href = URL.createObjectURL(new Blob([csvOf(name)], { type: "text/csv" }));
  link.download = `corrected${name ? `-${name.replaceAll(/[^\p{L}\p{N}]+/gu, "-")}` : ""}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// All files are loaded, or none, as one step.
async function load(files) {
  const name = await annotator(), changes = [];
  for (const file of files) {
    try {
      changes.push(...changesOf(await file.text(), file.name, name));
    } catch (error) {
      await ask(`Nothing was loaded. ${file.name}: ${error.message}.`, "OK", { no: "" });
      return;
    }
  }
  commit(`loaded ${plural(files.length, "file")}`, changes);
  refresh();
  const conflicts = states.filter((state) => state === "conflict").length;
  say(`${plural(changes.length, "decision")} loaded; ${plural(conflicts, "conflict")}.`);
}

// The picker: any class, by its name or number. What the model thinks likely comes first.
function matches() {
  const text = picker.querySelector("input").value.trim().toLowerCase();
  const fit = (name, number) => String(number) === text || name.toLowerCase().includes(text);
  const found = [...data.classes.keys()].filter((number) => fit(data.classes[number], number));
  const exact = (number) => String(number) === text || data.classes[number].toLowerCase() === text;
  const likely = (number) => data.likely[current].indexOf(number) >>> 0; // not among them: very large
  return found.sort((a, b) => exact(b) - exact(a) || likely(a) - likely(b) || a - b).slice(0, OFFERED);
}

function listClasses() {
  picker.querySelector("ul").replaceChildren(...matches().map((number) =>
    element("li", "", button("", element("span", "", element("kbd", "", String(number)), ` ${data.classes[number]}`), { label: number }))));
}

function pick(start = "") {
  if (!listed.includes(current)) {
    move(0);
    return;
  }
  const field = picker.querySelector("input");
  field.value = start;
  listClasses();
  picker.showModal();
  field.focus();
}

function choose(label) {
  picker.close();
  judge(chosenClass(current, label), label);
}

picker.addEventListener("keydown", (event) => {
  const buttons = [...picker.querySelectorAll("li button")], here = buttons.indexOf(document.activeElement);
  if (event.key === "Enter" && here < 0 && buttons.length) choose(Number(buttons[0].dataset.label));
  else if (event.key === "ArrowDown") buttons[here + 1]?.focus();
  else if (event.key === "ArrowUp") (buttons[here - 1] ?? picker.querySelector("input")).focus();
  else return;
  event.preventDefault();
});

function digit(key) {
  if (data.classes.length > FEW) pick(key);
  else if (Number(key) < data.classes.length && listed.includes(current)) choose(Number(key));
}

// The current example alone, as large as the window allows.
function enlarge() {
  const large = card(current);
  zoom.querySelector(".large").replaceChildren(large);
  if (zoom.open && !picker.open) large.focus({ preventScroll: true });
}

function toggleZoom() {
  if (zoom.open) {
    zoom.close();
    return;
  }
  if (!listed.includes(current)) move(0);
  if (current === null) return;
  zoom.showModal();
  enlarge();
}

zoom.addEventListener("close", () => listed.includes(current) && select(current));

const KEYS = {
  j: () => move(1), ArrowRight: () => move(1), ArrowDown: () => move(zoom.open ? 1 : columns),
  k: () => move(-1), ArrowLeft: () => move(-1), ArrowUp: () => move(zoom.open ? -1 : -columns),
  a: () => judge("accepted"), r: () => judge("rejected"), s: () => judge("unsure"), x: () => judge("unusable"),
  c: () => pick(), z: toggleZoom, u: () => again(undo(), "Undone"), U: () => again(redo(), "Done again"),
  "/": () => inputs.search.focus(),
};

function keyOf({ key, ctrlKey, metaKey, altKey, shiftKey }) {
  if (altKey) return "";
  if (!ctrlKey && !metaKey) return key;
  const undoes = { z: shiftKey ? "U" : "u", Z: "U", y: "U" };
  return undoes[key] ?? "";
}

document.addEventListener("keydown", (event) => {
  if (question.open || picker.open) return;
  if (event.target.closest("input, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = keyOf(event), act = /^[0-9]$/.test(key) ? () => digit(key) : KEYS[key];
  if (act === undefined) return;
  event.preventDefault();
  act();
});

const ACTS = {
  "accept-all": () => allShown("accepted"), "clear-all": () => allShown(undefined), download, zoom: toggleZoom,
  undo: KEYS.u, redo: KEYS.U, load: () => find("input[type=file]").click(), close: () => zoom.close(),
};

function click(event) {
  const suspect = event.target.closest("[data-place]"), pressed = event.target.closest("button");
  if (suspect !== null && !zoom.open) select(Number(suspect.dataset.place));
  if (pressed === null) return;
  const { decide: decision, act, label, person, step } = pressed.dataset;
  if (decision === "other") pick();
  else if (decision !== undefined) press(current, decision);
  else if (label !== undefined) choose(Number(label));
  else if (step !== undefined) move(Number(step));
  else if (person !== undefined) { forget(person); refresh(); }
  else if (act !== undefined) ACTS[act]();
  else if (pressed.closest(".question")) answer(pressed.value === "yes");
}

// A click on the matrix shows its labels.
function choosePair({ dataset: { row, column } }) {
  const pair = `${row},${column}`;
  if (![...inputs.pair.options].some((option) => option.value === pair)) return;
  inputs.class.value = inputs.state.value = inputs.search.value = "";
  inputs.pair.value = inputs.pair.value === pair ? "" : pair;
  refresh();
  if (inputs.pair.value !== "") find(".review").scrollIntoView();
}

function offer(select, options) {
  select.append(...options.map(([value, text]) => new Option(text, value)));
}

function offerFilters() {
  const pairs = new Map(), seen = new Set();
  for (const place of places) {
    const pair = `${data.given[place]},${data.suggested[place]}`;
    pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
    seen.add(data.given[place]).add(data.suggested[place]);
  }
  const arrow = (pair) => pair.split(",").map((number) => data.classes[number]).join(" → ");
  offer(inputs.class, [...seen].sort((a, b) => a - b).map((number) => [number, data.classes[number]]));
  offer(inputs.pair, [...pairs].sort((a, b) => b[1] - a[1]).slice(0, PAIRS).map(([pair, many]) => [pair, `${arrow(pair)} (${many})`]));
  offer(inputs.state, SHOWN.map((state) => [state, state]));
  if (data.classes.length > FEW || data.classes.every((name, number) => name === String(number))) {
    find(".numbers").append("digits: a class by its number");
  } else find(".numbers").append(...data.classes.flatMap((name, number) => [element("kbd", "", String(number)), ` ${name} `]));
}

function start() {
  list.classList.add(data.kind);
  offerFilters();
  inputs.annotator.value = storedName();
  restore();
  for (const name of ["class", "pair", "state", "sort"]) inputs[name].addEventListener("change", filtered);
  inputs.search.addEventListener("input", filtered);
  inputs.annotator.addEventListener("change", () => storeName(inputs.annotator.value.trim()));
  question.querySelector("input").addEventListener("keydown", (event) => event.key === "Enter" && answer(true));
  question.addEventListener("close", () => answered(false)); // by Escape
  picker.querySelector("input").addEventListener("input", listClasses);
  find("input[type=file]").addEventListener("change", async ({ target }) => {
    await load([...target.files]);
    target.value = "";
  });
  for (const each of document.querySelectorAll(".matrix .heat g[data-row]")) each.addEventListener("click", () => choosePair(each));
  document.addEventListener("click", click);
  addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  addEventListener("resize", () => { measure(); draw(); });
  refresh();
}

start();
