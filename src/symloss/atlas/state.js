// What is shown, and the same as text behind the # of the address: loss=sgce:q=0.8&with=ce&classes=10&noise=60
const SIDES = ["first", "second"];

function lossNamed(data, name) {
  return data.losses.find((loss) => loss.name === name);
}

function startOf(loss) {
  return { loss, position: loss.sliders.map((slider) => slider.default) };
}

function usual(data) {
  const first = lossNamed(data, "sgce") ?? data.losses[0], second = lossNamed(data, "ce");
  return {
    first: startOf(first), second: second && second !== first ? startOf(second) : null,
    classes: Math.max(0, data.classes.indexOf(data.threshold.classes)), p: 0.3, label: 0, noise: 0, scaled: false, stretched: false, at: [6, 9, 6],
  };
}

// Move one slider. Where not every combination is in the page, the others go back to their defaults.
function moved(side, slider, index) {
  const rest = side.loss.together ? [...side.position] : side.loss.sliders.map((each) => each.default);
  rest[slider] = index;
  return { loss: side.loss, position: rest };
}

function settingOf({ loss, position }) {
  return loss.first + loss.positions[position.join(",")];
}

function valueAt(side, slider) {
  return side.loss.sliders[slider].points[side.position[slider]];
}

// A loss and its parameters as the library spells them: sgce:q=0.8
function specOf(side) {
  const kept = side.loss.sliders.map((slider, k) => [slider, k]).filter(([slider, k]) => side.position[k] !== slider.default);
  const words = kept.map(([slider, k]) => `${slider.name}=${Number(valueAt(side, k).toPrecision(6))}`);
  return words.length ? `${side.loss.name}:${words.join(",")}` : side.loss.name;
}

function nearest(points, value) {
  const distance = (point) => (point === null ? Infinity : Math.abs(point - value));
  return points.reduce((best, point, i) => (distance(point) < distance(points[best]) ? i : best), 0);
}

function sideOf(data, spec, complain) {
  // The name of a composed loss may hold colons itself.
  const [name, values = ""] = lossNamed(data, spec) ? [spec] : spec.split(":");
  const loss = lossNamed(data, name);
  if (!loss) {
    complain(`There is no loss called “${name}” on this page.`);
    return undefined;
  }
  let side = startOf(loss);
  for (const [key, text] of values.split(",").filter(Boolean).map((pair) => pair.split("="))) {
    const slider = loss.sliders.findIndex((each) => each.name === key), value = Number(text);
    if (slider < 0 || !text || Number.isNaN(value)) complain(`${name} has no setting “${key}=${text ?? ""}”.`);
    else side = moved(side, slider, nearest(loss.sliders[slider].points, value));
  }
  return side;
}

function stateOf(data, hash, complain) {
  const state = usual(data), told = {};
  for (const part of hash.replace(/^#/, "").split("&").filter(Boolean)) {
    const cut = part.indexOf("=");
    try {
      told[part.slice(0, cut)] = decodeURIComponent(part.slice(cut + 1));
    } catch {
      complain(`The address holds “${part}”, which cannot be read.`);
    }
  }
  if (told.loss) state.first = sideOf(data, told.loss, complain) ?? state.first;
  if (told.with === "none") state.second = null;
  else if (told.with) state.second = sideOf(data, told.with, complain) ?? state.second;
  const number = (key, low, high) => (key in told && told[key] !== "" && Number(told[key]) >= low && Number(told[key]) <= high ? Number(told[key]) : null);
  if (number("classes", 2, Infinity) !== null) state.classes = nearest(data.classes, number("classes", 2, Infinity));
  if (number("noise", 0, 100) !== null) state.noise = nearest(data.threshold.noise, number("noise", 0, 100) / 100);
  state.p = number("p", ...data.ranges.p) ?? state.p;
  state.label = Math.round((number("label", 1, 3) ?? 1) - 1);
  state.scaled = told.scale === "ce";
  state.stretched = told.stretch === "1";
  return state;
}

function hashOf(data, state) {
  const parts = [`loss=${specOf(state.first)}`, `with=${state.second ? specOf(state.second) : "none"}`];
  parts.push(`classes=${data.classes[state.classes]}`, `p=${state.p}`, `label=${state.label + 1}`);
  parts.push(`noise=${Math.round(100 * data.threshold.noise[state.noise])}`);
  if (state.scaled) parts.push("scale=ce");
  if (state.stretched) parts.push("stretch=1");
  return `#${parts.join("&")}`;
}
