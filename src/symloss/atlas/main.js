// The page: reads the data, follows the controls, and draws.
const page = { data: JSON.parse(document.getElementById("data").textContent), numbers: null, state: null, frames: {} };
const CURVES = { value: "Value", weight: "Gradient weight", sum: "Sum over labels, relative," };

function shownSides() {
  return SIDES.filter((name) => page.state[name]).map((name) => ({ name, ...page.state[name] }));
}

// The three curves of a loss. If they are scaled: divided by the slope, and counted from equal scores.
function curvesOf(side) {
  const { data, numbers, state } = page, classes = data.classes[state.classes], setting = settingOf(side);
  const found = Object.fromEntries(Object.keys(CURVES).map((name) => [name, numbers.array(setting, `${name} ${classes}`)]));
  const slope = state.scaled ? side.loss.slopes[setting - side.loss.first]?.[state.classes] : 1;
  if (!state.scaled || !slope) return found;
  const equal = equalScores();
  const origin = { value: found.value.values[equal], weight: 0, sum: found.sum.values[equal] };
  for (const [name, curve] of Object.entries(found)) {
    found[name] = { values: curve.values.map((value) => (value - origin[name]) / slope) };
  }
  return found;
}

function drawAllCurves() {
  const { data, state } = page, margins = data.margins[state.classes], ps = data.probabilities[state.classes];
  const axes = {
    p: { xs: ps, xRange: [0, 1], kept: data.ranges.p, xTitle: "p", at: state.p },
    margin: { xs: margins, xRange: data.ranges.margin, kept: data.ranges.margin, xTitle: "margin", at: marginAt(state.p) },
  };
  const sides = shownSides().map((side) => ({ ...side, curves: curvesOf(side) }));
  for (const [what, title] of Object.entries(CURVES)) {
    for (const [axis, { xs, kept, ...rest }] of Object.entries(axes)) {
      const inside = xs.map((_, i) => i).filter((i) => xs[i] >= kept[0] - 1e-9 && xs[i] <= kept[1] + 1e-9);
      const of = (array) => inside.map((i) => array[i]);
      const series = sides.map(({ name, loss, curves }) => {
        const ys = what === "sum" ? bendOf(curves) : curves[what].values;
        return { side: name, name: loss.name, xs: of(xs), ys: of(ys), room: what === "sum" ? 1 : 0 };
      });
      const id = `${what}-${axis}`;
      page.frames[id] = drawCurves(document.getElementById(id), series, { ...rest, title: `${title} against ${axis}` });
    }
  }
  showReadout(sides, ps);
}

// How much numbers differ where p is on the axis.
function rangeOf(values) {
  const ps = page.data.probabilities[page.state.classes], [low, high] = page.data.ranges.p;
  const inside = Array.from(values).filter((_, i) => ps[i] >= low - 1e-9 && ps[i] <= high + 1e-9);
  return Math.max(...inside) - Math.min(...inside);
}

// The sum over labels less that at equal scores, in ranges of the value. Losses of every size fit on one axis.
function bendOf(curves) {
  const range = rangeOf(curves.value.values) || 1, origin = curves.sum.values[equalScores()];
  return curves.sum.values.map((sum) => (sum - origin) / range);
}

function equalScores() {
  return page.data.margins[page.state.classes].findIndex((margin) => Math.abs(margin) < 1e-9);
}

function marginAt(p) {
  return Math.log(p / (1 - p)) + Math.log(page.data.classes[page.state.classes] - 1);
}

function showReadout(sides, ps) {
  const table = document.getElementById("readout");
  table.querySelector("thead span").textContent = inWords(page.state.p);
  const rows = sides.map(({ name, loss, curves }) => {
    const range = rangeOf(curves.value.values);
    const cells = Object.keys(CURVES).map((what) => inWords(interpolated(ps, curves[what].values, page.state.p), range));
    const head = node("th", { scope: "row" }, node("span", { className: `swatch ${name}` }), loss.name);
    return node("tr", {}, head, ...[...cells, variation(rangeOf(curves.sum.values), range)].map((cell) => node("td", { textContent: cell })));
  });
  table.tBodies[0].replaceChildren(...rows);
}

// How far a sum is from constant. Rounding in float64 is no deviation.
function variation(spread, range) {
  if (spread <= 1e-9 * Math.max(range, 1e-300)) return `nothing: constant to ${inWords(spread)}`;
  return `${inWords(spread)}, ${inWords((100 * spread) / range)} % of the range of the value`;
}

function drawAllMaps() {
  const { data, numbers, state } = page, steps = data.simplex.steps, at = state.at.map((count) => count / steps);
  const p = at.map((share) => data.simplex.edge + (1 - 3 * data.simplex.edge) * share);
  for (const name of SIDES) {
    const side = state[name];
    for (const what of ["map", "sum"]) document.getElementById(`${what}-${name}`).closest("figure").hidden = !side;
    if (!side) continue;
    const value = numbers.array(settingOf(side), "simplex value"), sum = numbers.array(settingOf(side), "simplex sum");
    const common = { steps, at, span: 0 }, where = `at p = (${p.map((each) => each.toFixed(2)).join(", ")})`;
    const spec = specOf(side);
    const first = document.getElementById(`map-${name}`).closest("figure"), second = document.getElementById(`sum-${name}`).closest("figure");
    const here = drawMap(first, { ...common, ...value, label: state.label, chosen: state.label, title: `${spec}: value for label ${state.label + 1}` });
    first.querySelector(".reading").textContent = `${where}: ${inWords(here, value.span)}`;
    const total = drawMap(second, { ...common, ...sum, label: 0, chosen: null, span: value.span, title: `${spec}: sum over labels` });
    second.querySelector(".reading").textContent = `${where}: ${inWords(total, value.span)}. Over the triangle it varies by ${variation(sum.span, value.span)}.`;
    for (const figure of [first, second]) {
      const map = figure.querySelector(".map");
      map.setAttribute("aria-label", `${figure.querySelector("b").textContent}. Arrow keys move the point.`);
    }
  }
}

function drawAllRisks() {
  const { data, numbers, state } = page, { thetas, noise, accuracy, densities } = data.threshold;
  for (const name of SIDES) {
    const side = state[name], figure = document.getElementById(`noise-${name}`).closest("figure");
    figure.hidden = !side;
    if (!side) continue;
    const array = (field) => numbers.array(settingOf(side), `risk ${field}`);
    const risk = { clean: array("clean"), noisy: array("noisy"), minima: array("minima") }, spec = specOf(side);
    drawRisk(figure.querySelector("svg"), { thetas, densities, noise, chosen: state.noise, risk, stretched: state.stretched, name: spec });
    const facts = Object.fromEntries(factsOf(data, side, data.classes.indexOf(data.threshold.classes)));
    figure.querySelector("b").textContent = spec;
    const known = `${facts.symmetric ? "" : "not "}symmetric with ${data.threshold.classes} classes`;
    figure.querySelector("figcaption span").textContent = side.loss.facts ? known : "";
    figure.querySelector(".reading").textContent = riskInWords(risk, state.noise, (theta) => interpolated(thetas, accuracy, theta));
  }
}

function riskInWords(risk, chosen, accuracyAt) {
  const { thetas, noise } = page.data.threshold, minima = risk.minima.values;
  if (risk.clean.span === 0) return "The risk is the same at every θ.";
  const percent = (theta) => `${(100 * accuracyAt(theta)).toFixed(1)} %`;
  const words = movement(minima, chosen, noise), edge = Math.abs(minima[chosen]) >= thetas[thetas.length - 1] - 1e-3;
  const right = percent(minima[chosen]) === percent(minima[0]) ? "" : `, ${percent(minima[0])} without noise`;
  return `${words[0].toUpperCase()}${words.slice(1)}${edge ? ", the edge of this picture" : ""}. `
    + `${percent(minima[chosen])} of the examples are then on the right side${right}.`;
}

function show() {
  const { data, state } = page;
  for (const name of SIDES) {
    showChoice(document.getElementById(name), data, state, name, (slider, index) => set({ [name]: moved(page.state[name], slider, index) }));
  }
  showSlider("classes", state.classes, String(data.classes[state.classes]));
  showSlider("probe", state.p, inWords(state.p));
  showSlider("noise", state.noise, `${Math.round(100 * data.threshold.noise[state.noise])} %`);
  document.getElementById("scaled").checked = state.scaled;
  document.getElementById("stretched").checked = state.stretched;
  document.getElementById("swap").disabled = !state.second;
  for (const radio of document.querySelectorAll("[name=label]")) radio.checked = Number(radio.value) === state.label;
  const without = state.scaled ? shownSides().filter((side) => !side.loss.slopes[settingOf(side) - side.loss.first]?.[state.classes]) : [];
  document.getElementById("scaled-note").dataset.without = without.map((side) => side.loss.name).join(", ");
  drawAllCurves();
  drawAllMaps();
  drawAllRisks();
}

// Change what is shown. Many changes in a moment are drawn once.
function set(changes) {
  Object.assign(page.state, changes);
  if (page.waiting) return;
  page.waiting = true;
  requestAnimationFrame(() => {
    page.waiting = false;
    show();
  });
  // Browsers allow the address to change a few times a second only.
  clearTimeout(page.address);
  page.address = setTimeout(() => history.replaceState(null, "", hashOf(page.data, page.state)), 300);
}

function read() {
  const complaints = [], notice = document.getElementById("notice");
  page.state = stateOf(page.data, location.hash, (text) => complaints.push(text));
  notice.hidden = !complaints.length;
  notice.textContent = complaints.join(" ");
  show();
}

// Arrow keys move the point of the maps along the grid.
function movePoint(key) {
  const [top, left, right] = page.state.at;
  const next = { ArrowUp: [top + 2, left - 1, right - 1], ArrowDown: [top - 2, left + 1, right + 1],
    ArrowLeft: [top, left + 1, right - 1], ArrowRight: [top, left - 1, right + 1] }[key];
  if (next && next.every((count) => count >= 0)) set({ at: next });
  return Boolean(next);
}

function pointAt(map, event) {
  const box = map.querySelector("canvas").getBoundingClientRect(), steps = page.data.simplex.steps;
  const shares = sharesAt(((event.clientX - box.left) / box.width) * 320, Math.min(1, Math.max(0, (event.clientY - box.top) / box.height)) * 277);
  const left = Math.round(shares[1] * steps), right = Math.min(Math.round(shares[2] * steps), steps - left);
  set({ at: [steps - left - right, left, right] });
}

function listen() {
  const { data } = page, byId = (id) => document.getElementById(id);
  document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  for (const name of SIDES) {
    const select = byId(name).querySelector("select");
    fillChoices(select, data, name === "second");
    select.addEventListener("change", () => set({ [name]: select.value === "none" ? null : startOf(lossNamed(data, select.value)) }));
  }
  [byId("probe").min, byId("probe").max] = data.ranges.p;
  byId("classes").max = data.classes.length - 1;
  byId("noise").max = data.threshold.noise.length - 1;
  for (const [id, key] of [["classes", "classes"], ["probe", "p"], ["noise", "noise"]]) {
    byId(id).addEventListener("input", (event) => set({ [key]: Number(event.target.value) }));
  }
  for (const key of ["scaled", "stretched"]) byId(key).addEventListener("change", (event) => set({ [key]: event.target.checked }));
  for (const radio of document.querySelectorAll("[name=label]")) radio.addEventListener("change", () => set({ label: Number(radio.value) }));
  byId("swap").addEventListener("click", () => set({ first: page.state.second, second: page.state.first }));
  for (const what of Object.keys(CURVES)) {
    for (const axis of ["p", "margin"]) {
      byId(`${what}-${axis}`).addEventListener("pointermove", (event) => {
        const x = page.frames[`${what}-${axis}`].under(event), [low, high] = data.ranges.p;
        const p = axis === "p" ? x : 1 / (1 + Math.exp(Math.log(data.classes[page.state.classes] - 1) - x));
        set({ p: Math.round(1000 * Math.min(high, Math.max(low, p))) / 1000 });
      });
    }
  }
  for (const map of document.querySelectorAll(".map")) {
    const reading = map.closest("figure").querySelector(".reading");
    map.addEventListener("focus", () => reading.setAttribute("aria-live", "polite"));
    map.addEventListener("blur", () => reading.removeAttribute("aria-live"));
    map.addEventListener("keydown", (event) => { if (movePoint(event.key)) event.preventDefault(); });
    map.addEventListener("pointermove", (event) => pointAt(map, event));
    map.addEventListener("pointerdown", (event) => pointAt(map, event));
  }
  for (const canvas of document.querySelectorAll(".scale canvas")) paintScale(canvas);
  window.addEventListener("hashchange", read);
  window.addEventListener("resize", () => set({}));
}

async function start() {
  if (typeof DecompressionStream === "undefined") {
    const notice = document.getElementById("notice");
    notice.hidden = false;
    notice.textContent = "This browser cannot unpack the numbers of this page. One from 2023 or later can.";
    return;
  }
  page.numbers = await numbersOf(page.data);
  listen();
  read();
  document.documentElement.dataset.ready = "yes";
}

start();
